# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Peaks of rehearsed ranks beside those of real ranks on the simulator, in many configurations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import accel_sim
from benchmarks import results

_PROGRAMS = results.FOLDER.parent.parent / "packages/accel-sim/tests/rehearse"
_PARALLEL = (
    "pipeline", "moe", "fsdp2", "ddp", "trainer", "accelerate", "autotp", "nvme", "ulysses",
    "checkpointing_partitioned", "checkpointing_on_host",
)  # fmt: skip
#: No code generator and no threads of its own for a rank.
_ALONE = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
_COMPARED = ("requested", "allocated", "host")

_TEXT = """\
Small models (0.5 to 2.1 M parameters) take two steps, on real ranks of the simulator, where every kernel computes, and
in a rehearsal. Each configuration runs in processes of its own. Of a pipeline one rank of each stage is shown, of
experts one of each group, of others rank 0. A column *difference* has what the rehearsal has more, in bytes.

- *requested*: the peak of the bytes that tensors ask for.
- *allocated*, *reserved*: with the allocator's rounding, and with what it keeps. The real ranks' allocator is the
  rehearsal's model of CUDA's, with npu's padding: equal rows show that the same tensors come and go in the same order,
  and nothing about the model itself. Where *reserved* differs, it is by one small segment of 2 MiB; the cause was not
  traced.
- *host*: the peaks of pageable and of pinned memory of tensors, added. What kernels and gloo take to simulate a device
  does not count.

Python's garbage collection is off on both sides: it finds garbage at other moments in the other process. A rehearsal
counts the steps of fused optimizers as free; here it computes them, as the simulator does (`--computed-steps`).
`torch.compile` is off in the real ranks, because a simulated device has no code generator.

    python -m benchmarks.rehearse_equality"""


def _real(ranks: int, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *words],
        env=accel_sim.environment("npu", devices=ranks, base=os.environ | _ALONE),
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip


def _rehearsed(ranks: int, which: str, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "accel_core.cli", "rehearse", "npu", "--memory=16GiB", "--reserve=0", f"--ranks={ranks}",
         f"--rank={which}", "--steps=1000", "--computed-steps", "--", *words],
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip


def _row(name: str, ranks: str, real: dict[str, Any], rehearsed: dict[str, Any]) -> dict[str, Any]:
    if error := real.get("error") or rehearsed.get("error"):
        raise SystemExit(f"{name}: {error}")
    row: dict[str, Any] = {"configuration": name, "ranks": ranks}
    for kind in (*_COMPARED, "reserved"):
        row |= {f"{kind}, bytes": real[kind], f"{kind}, difference": rehearsed[kind] - real[kind]}
    return row


def _configurations(folder: Path, ranks: int) -> list[dict[str, Any]]:
    program = str(_PROGRAMS / "configurations.py")
    real, rehearsed = folder / f"real{ranks}.json", folder / f"rehearsed{ranks}.json"
    _real(ranks, program, str(real))
    _rehearsed(ranks, "0", program, str(rehearsed))
    found = json.loads(rehearsed.read_text())
    return [
        _row(name, str(ranks), peaks, found[name]) for name, peaks in json.loads(real.read_text()).items()
    ]


def _parallel(folder: Path, name: str) -> list[dict[str, Any]]:
    program, real, rehearsed = str(_PROGRAMS / "parallel.py"), folder / "real", folder / "rehearsed"
    for each in (real, rehearsed):
        each.mkdir(exist_ok=True)
    _real(4, program, name, str(real))
    _rehearsed(4, "first,stages", program, name, str(rehearsed))
    rows = []
    for file in sorted(rehearsed.glob(f"{name}.*.json")):
        rank = file.suffixes[-2].removeprefix(".")
        peaks = [json.loads((each / file.name).read_text()) for each in (real, rehearsed)]
        rows.append(_row(name, f"4 (rank {rank})", *peaks))
    return rows


def main() -> None:
    """Run both, and write the page."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        for program in _PARALLEL:
            rows += _parallel(Path(name), program)
        for ranks in (2, 4):
            rows += _configurations(Path(name), ranks)
    equal = sum(not any(row[f"{kind}, difference"] for kind in _COMPARED) for row in rows)
    reserved = sum(not row["reserved, difference"] for row in rows)
    text = (
        f"**Requested, allocated and host peaks of {equal} of {len(rows)} are equal to the byte**;"
        f" reserved peaks are in {reserved}.\n\n{_TEXT}"
    )
    results.write("rehearse_equality", "Rehearsed and real ranks", text, rows)


if __name__ == "__main__":
    main()
