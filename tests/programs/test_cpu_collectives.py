# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What collectives an unchanged program gets on CPU ranks, by launcher: shared memory, unless gloo is named."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import TCPStore

from accel_core import processes

ASKS = "torch.distributed.init_process_group(get_accelerator().communication_backend_name())"
DEEPSPEED = "deepspeed.init_distributed()"
ACCELERATE = "accelerate.PartialState()"
NAMES_GLOO = 'deepspeed.init_distributed("gloo")'

PROGRAM = """
import json, logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
import torch, deepspeed
from deepspeed.accelerator import get_accelerator
{imports}
{begin}
group, total = torch.distributed.group.WORLD, torch.ones(3)
torch.distributed.all_reduce(total)
if torch.distributed.get_rank() == 0:
    answer = [torch.distributed.get_backend(), getattr(group, "reason", ""), total.tolist()]
    print("answer " + json.dumps(answer), flush=True)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""
PYTHON = [sys.executable]
LAUNCHERS = {
    "python": PYTHON,
    "deepspeed": ["deepspeed", "--num_gpus", "2"],
    "torchrun": ["torchrun", "--standalone", "--nproc-per-node", "2"],
    "accel launch": ["accel", "launch", "--num_gpus", "2"],
}


def _run(folder: Path, launcher: str, begin: str, **variables: str) -> tuple[list[Any], str]:
    """Run the program, and return the answer of rank 0 and what was logged."""
    program = folder / "program.py"
    program.write_text(PROGRAM.format(begin=begin, imports="import accelerate" * (begin == ACCELERATE)))
    name, *options = LAUNCHERS[launcher]
    command = str(Path(sys.executable).with_name(name)) if launcher != "python" else name
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ACCEL_CPU", "DS_ACC"))}
    environment |= {"OMP_NUM_THREADS": "1"} | variables
    if launcher == "deepspeed":
        # Its port is 29500, which another program may have. The ranks meet at a store of this process instead.
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        options += ["--master_port", str(store.port)]
        environment["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    done = processes.run([command, *options, str(program)], 600, env=environment)
    answers = [line.partition("answer ")[2] for line in done.stdout.splitlines() if "answer [" in line]
    assert len(answers) == 1, done.stdout[-1500:] + done.stderr[-3000:]
    return json.loads(answers[0]), done.stdout + done.stderr


# tests/torch_versions/run.py chooses by these ids.
@pytest.mark.parametrize(
    ("launcher", "begin"),
    [
        pytest.param("deepspeed", DEEPSPEED, id="runner"),
        pytest.param("torchrun", DEEPSPEED, id="torchrun"),
        pytest.param("accel launch", DEEPSPEED, id="launch"),
        pytest.param("torchrun", ASKS, id="torchrun by name"),
        pytest.param("torchrun", ACCELERATE, id="torchrun and accelerate"),
    ],
)
@pytest.mark.sample("launch")
def test_two_ranks_of_an_unchanged_program_share_memory(tmp_path: Path, launcher: str, begin: str) -> None:
    variables = {"ACCELERATE_USE_DEEPSPEED": "true"} if begin == ACCELERATE else {}
    answer, logged = _run(tmp_path, launcher, begin, **variables)
    assert answer == ["shm", "shared memory of 2 processes", [2.0] * 3]
    assert logged.count("collectives of the CPU ranks are done in memory") == 1


def test_a_program_without_a_launcher_needs_no_memory_to_share(tmp_path: Path) -> None:
    answer, _ = _run(tmp_path, "python", DEEPSPEED)
    assert answer == ["shm", "there is one rank", [1.0] * 3]


@pytest.mark.slow
def test_gloo_is_used_where_the_program_or_the_variable_names_it(tmp_path: Path) -> None:
    for begin, variables in ((NAMES_GLOO, {}), (DEEPSPEED, {"ACCEL_CPU_BACKEND": "gloo"})):
        answer, _ = _run(tmp_path, "torchrun", begin, **variables)
        assert answer == ["gloo", "", [2.0] * 3]
