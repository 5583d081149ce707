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
_PARALLEL = ("pipeline", "moe", "fsdp2", "ddp", "trainer", "accelerate", "autotp", "nvme")

_TEXT = """\
Small models (1.9 M and 2.1 M parameters; those of the other ways of parallelism have 0.5 to 2 M) take two steps, on
real ranks of the simulator, where every kernel computes, and in a rehearsal. Of a pipeline one rank of each stage is
shown, of others rank 0. *requested* is the peak of the bytes that tensors ask for, *difference* what the
rehearsal has more. *allocated* has the allocator's rounding: the simulator's rounds to 512 bytes and never splits a
segment, the rehearsal's is CUDA's with npu's padding, so that the share of memory that cannot be split off is large for
models that are this small.

A difference of 4 bytes is a tensor without dimensions: a work of the collectives holds it until it is waited for. The
configurations run one after the other in one process; one that differs there, because an earlier engine was not
released yet, was run again in a process of its own, and that result is shown.

    python -m benchmarks.rehearse_equality"""


def _real(ranks: int, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *words],
        env=accel_sim.environment("npu", devices=ranks, base={**os.environ, "OMP_NUM_THREADS": "1"}),
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip


def _rehearsed(ranks: int, which: str, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "accel_core.cli", "rehearse", "npu", "--memory=16GiB", "--reserve=0", f"--ranks={ranks}",
         f"--rank={which}", "--steps=1000", "--computed-steps", "--", *words],
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip


def _row(name: str, ranks: str, real: dict[str, Any], rehearsed: dict[str, Any]) -> dict[str, Any]:
    more = rehearsed["allocated"] / real["allocated"] - 1
    return {
        "configuration": name,
        "ranks": ranks,
        "requested, bytes": real["requested"],
        "difference": rehearsed["requested"] - real["requested"],
        "allocated, difference": f"{100 * more:.2f} %",
    }


def _configurations(folder: Path, ranks: int, *names: str) -> list[dict[str, Any]]:
    """Run some configurations, or all; those that differ run once more, each in a process of its own."""
    program = str(_PROGRAMS / "configurations.py")
    real, rehearsed = folder / f"real{ranks}.json", folder / f"rehearsed{ranks}.json"
    _real(ranks, program, str(real), *names)
    _rehearsed(ranks, "0", program, str(rehearsed), *names)
    expected, found = json.loads(real.read_text()), json.loads(rehearsed.read_text())
    rows = [_row(name, str(ranks), peaks, found[name]) for name, peaks in expected.items()]
    if len(rows) == 1:
        return rows
    return [
        alone for row in rows
        for alone in (_configurations(folder, ranks, row["configuration"]) if row["difference"] else [row])
    ]  # fmt: skip


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
    equal = sum(not row["difference"] for row in rows)
    text = f"**{equal} of {len(rows)} are equal to the byte.**\n\n{_TEXT}"
    results.write("rehearse_equality", "Rehearsed and real ranks", text, rows)


if __name__ == "__main__":
    main()
