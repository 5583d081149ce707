# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A rehearsed rank requests as many bytes as a real one on the simulator, where every kernel computes."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import accel_sim
from accel_core import processes

pytest.importorskip("deepspeed")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.more, pytest.mark.upstream]

CONFIGURATIONS = Path(__file__).with_name("configurations.py")
PARALLEL = Path(__file__).with_name("parallel.py")
#: No code generator and no threads of its own for a rank.
_ALONE = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
PROGRAMS = (
    "fsdp2", "ddp", "trainer", "accelerate", "autotp", "nvme", "ulysses", "checkpointing_partitioned",
    "checkpointing_on_host",
)  # fmt: skip
#: Of the sixty of the nightly run.
THREE = ("gpt, ZeRO 2, bf16", "llama, ZeRO 3, checkpointing", "ZeRO 3, everything on the host")


def real(ranks: int, program: Path, *words: str) -> None:
    """Run a program on ranks of the simulator."""
    launch = f"-W ignore -m torch.distributed.run --standalone --nproc-per-node={ranks}".split()
    environment = accel_sim.environment("npu", devices=ranks, base=os.environ | _ALONE)
    done = processes.run([sys.executable, *launch, str(program), *words], 3600, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]


def rehearse(ranks: int, which: str, program: Path, *words: str) -> None:
    """Rehearse some of them."""
    options = f"npu --memory=16GiB --ranks={ranks} --rank={which} --steps=1000 --".split()
    command = [sys.executable, "-m", "accel_core.cli", "rehearse", *options, str(program), *words]
    done = processes.run(command, 3600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def check(expected: dict[str, Any], found: dict[str, Any], name: str) -> None:
    assert "error" not in expected | found, f"{name}: {expected}, rehearsed: {found}"
    for peak in ("requested", "allocated", "host"):
        assert found[peak] == expected[peak], f"{name}: {peak}"


@pytest.mark.parametrize(
    ("ranks", "names"), [(2, THREE), *(pytest.param(ranks, (), marks=pytest.mark.slow) for ranks in (2, 4))]
)
def test_a_rehearsed_rank_requests_what_a_real_one_does(tmp_path, ranks, names) -> None:
    files = [tmp_path / "real.json", tmp_path / "rehearsed.json"]
    real(ranks, CONFIGURATIONS, str(files[0]), *names)
    rehearse(ranks, "0", CONFIGURATIONS, str(files[1]), *names)
    expected, found = (json.loads(file.read_text()) for file in files)
    assert len(expected) >= (len(names) or 60)
    assert found.keys() == expected.keys()
    for name, peaks in expected.items():
        check(peaks, found[name], name)


# In moe rank 1 has other experts than rank 0.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks"), [("pipeline", (0, 2)), ("moe", (0, 1, 3)), *((name, (0, 3)) for name in PROGRAMS)]
)
def test_the_ranks_that_are_rehearsed_request_what_real_ones_do(tmp_path, name, ranks) -> None:
    folders = [tmp_path / "real", tmp_path / "rehearsed"]
    for folder in folders:
        folder.mkdir()
    real(4, PARALLEL, name, str(folders[0]))
    rehearse(4, "first,last,stages", PARALLEL, name, str(folders[1]))
    assert {file.name for file in folders[1].glob("*.json")} == {f"{name}.{rank}.json" for rank in ranks}
    for rank in ranks:
        expected, found = (json.loads((folder / f"{name}.{rank}.json").read_text()) for folder in folders)
        check(expected, found, f"rank {rank}")
