# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The rank that DeepSpeed gets: under each launcher, nested ones, and without any."""

import json
import logging
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from accel_core.errors import InvalidEnvironment
from accel_core.launchers import VARIABLES
from accel_core.upstream import distributed, ranks
from shared.children import Children, run

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "ACCEL_STORE_ADDRESS")


@pytest.fixture(autouse=True)
def without_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "module_exists", lambda name: False)
    for name in (*VARIABLES, *NAMES):
        monkeypatch.delenv(name, raising=False)


# --- without a launcher a program is a job of one rank; whatever says which rank this is stays in charge


def test_variables_without_a_launcher() -> None:
    environ: dict[str, str] = {}
    assert ranks.rank_env({}, environ) == NAMES
    assert [environ[name] for name in NAMES[:4]] == ["0", "1", "0", "127.0.0.1"]
    assert environ["ACCEL_STORE_ADDRESS"] == "127.0.0.1"
    assert 0 < int(environ["MASTER_PORT"]) < 65536


ARGUMENTS = {"auto_mpi_discovery": False, "dist_init_required": False, "rank": 0, "world_size": 2}
#: The arguments of `init_distributed`, the variables, and those that are added to them.
ASKED: list[tuple[dict[str, Any], dict[str, str], Sequence[str]]] = [
    ({}, {"HOME": "/root"}, NAMES),
    ({}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, NAMES),  # a batch script, of which there is one
    ({}, {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4000"}, NAMES[:3]),
    ({}, {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4000"}, NAMES[2:3]),
    ({}, {**dict.fromkeys(NAMES[:5], "2"), "RANK": "1"}, ()),
    *(({name: value}, {}, ()) for name, value in ARGUMENTS.items()),
]
#: Ranks that their jobs do not have.
_BEYOND: list[dict[str, str]] = [dict.fromkeys(NAMES[:5], "2"), {"PMI_RANK": "5", "PMI_SIZE": "2"}]


@pytest.mark.parametrize(("arguments", "given", "added"), ASKED)
def test_set_variables_are_kept(arguments: Any, given: dict[str, str], added: Sequence[str]) -> None:
    environ = dict(given)
    assert sorted(ranks.rank_env(arguments, environ)) == sorted(added)
    assert environ.items() >= given.items()
    assert environ.keys() - given.keys() == set(added)


def test_mpi4py_finds_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "module_exists", lambda name: name == "mpi4py")
    assert ranks.rank_env({}, {}) == ()


@pytest.mark.parametrize("variable", ["HOROVOD_RANK", "JOB_COMPLETION_INDEX"])
def test_unknown_launcher_is_a_warning(caplog: pytest.LogCaptureFixture, variable: str) -> None:
    ranks.rank_env({}, {variable: "1"})
    ranks.rank_env({}, {variable: "1", "RANK": "0", "WORLD_SIZE": "1"})
    ranks.rank_env({}, {"LORA_RANK": "8"})
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert f"{variable}=1 may be the rank" in record.getMessage()


def test_existing_process_group_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("torch.distributed")
    fake.is_available = fake.is_initialized = lambda: True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.distributed", fake)
    assert ranks.rank_env({}, {}) == ()


def test_failure_leaves_no_variable() -> None:
    def failing(dist_backend: str) -> None:
        raise ValueError(distributed.os.environ["RANK"])

    accelerator = SimpleNamespace(device_count=lambda: 1)
    with pytest.raises(ValueError, match=r"^0$"):
        distributed.explained(failing, lambda: accelerator)("gloo")
    assert not [name for name in NAMES if name in distributed.os.environ]


def test_mpi_of_another_launcher_is_a_warning(monkeypatch: Any, caplog: Any) -> None:
    """With mpi4py, whose MPI the launcher has not started, each process is rank 0 of 1."""
    monkeypatch.setattr(ranks, "module_exists", lambda name: True)
    for name, value in {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2", "FLUX_TASK_LOCAL_ID": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    monkeypatch.setattr(distributed, "_warn_if_torch_has_no_accelerator", lambda accel: None)
    distributed.explained(lambda: None, lambda: None)()
    assert ["the launcher has started 2 ranks" in text for text in caplog.messages] == [True]


@pytest.mark.upstream
def test_program_without_a_launcher_trains_alone(toy: Any) -> None:
    snippet = """
        import deepspeed, json, os, socket, torch
        deepspeed.init_distributed(dist_backend="gloo")
        total = torch.ones(1)
        torch.distributed.all_reduce(total)
        other = socket.socket().connect_ex(("127.0.0.2", int(os.environ["MASTER_PORT"])))
        print(json.dumps([torch.distributed.get_world_size(), total.item(), os.environ["LOCAL_RANK"], other != 0]))
    """
    found = toy.run(snippet, DS_ACCELERATOR="toy").report
    assert found == [1, 1.0, "0", True], "its store listens on 127.0.0.1 alone"


# --- launchers that are not installed here, by their variables; those that are

#: {} is the rank. Of jsrun and MVAPICH the job has no name: another one is between them, which gets another port.
LAUNCHERS = {
    "jsrun": "JSM_NAMESPACE_RANK={} JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_LOCAL_RANK={} JSM_NAMESPACE_LOCAL_SIZE=2",
    "PALS": "PALS_RANKID={} PALS_APID=a PALS_LOCAL_RANKID={} PALS_LOCAL_SIZE=2 PMI_RANK={} PMI_SIZE=2",
    "Flux": "FLUX_TASK_RANK={} FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID={} FLUX_JOB_NNODES=1 FLUX_JOB_ID=f",
    "MVAPICH": "MV2_COMM_WORLD_RANK={} MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_LOCAL_RANK={} MV2_COMM_WORLD_LOCAL_SIZE=2",
    "srun": "SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURM_PROCID={} SLURM_LOCALID={} SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 "
    "SLURM_STEP_NUM_NODES=1",
    "indexed job": "JOB_COMPLETION_INDEX={} WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=28999",
}
_JOIN = """
import deepspeed, json, os, sys, torch
import deepspeed.comm.comm as comm

found = {}
for name, variables in json.loads(os.environ["LAUNCHERS"]).items():
    given = dict(word.partition("=")[::2] for word in variables.split())
    os.environ.update(given)
    before = set(os.environ) - set(given)
    deepspeed.init_distributed("gloo", verbose=False)
    total = torch.tensor([deepspeed.comm.get_rank() + 1.0])
    torch.distributed.all_reduce(total)
    found[name] = [deepspeed.comm.get_rank(), os.environ["LOCAL_RANK"], total.item()]
    torch.distributed.destroy_process_group()
    comm.cdb = None
    for variable in set(os.environ) - before:
        del os.environ[variable]
print(json.dumps(found))
"""


@pytest.mark.upstream
def test_ranks_of_launchers_join(toy: Children) -> None:
    started = []
    for rank in range(2):
        given = {name: text.replace("{}", str(rank)) for name, text in LAUNCHERS.items()}
        started.append(toy.start(_JOIN, DS_ACCELERATOR="toy", LAUNCHERS=json.dumps(given)))
    for rank, child in enumerate(started):
        expected = {name: [rank, str(rank), 3.0] for name in LAUNCHERS} | {"indexed job": [rank, "0", 3.0]}
        assert toy.finish(child).expect_success().report == expected


_TRAIN = """
import os, sys, deepspeed, torch
torch.manual_seed(0)
config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Adam"}, "steps_per_print": 10**9}
engine, *_ = deepspeed.initialize(model=torch.nn.Linear(4, 1), config=config)
engine.backward(engine(torch.ones(1, 4)).sum())
engine.step()
file = open(f"{sys.argv[0]}.{engine.global_rank}", "w")
print(engine.global_rank, engine.world_size, engine.local_rank, os.environ["LOCAL_RANK"], file=file)
"""
_MPIEXEC = {
    "impi": ("mpiexec.hydra",),
    "mpich": ("mpiexec.mpich",),
    "openmpi": ("mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe"),
}
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@pytest.mark.sample("openmpi")
@pytest.mark.upstream
@pytest.mark.parametrize(
    ("mpi", "count", "nested"),
    [*((mpi, 2, ()) for mpi in _MPIEXEC), ("openmpi", 1, ()), ("openmpi", 1, _TORCHRUN)],
    ids=[*_MPIEXEC, "one process of openmpi", "torchrun under openmpi"],
)
def test_engine_under_mpiexec(
    toy: Children, mpi: str, count: int, nested: Sequence[str], tmp_path: Path
) -> None:
    program, *options = _MPIEXEC[mpi]
    # pip installs Intel MPI next to Python.
    path = shutil.which(program) or shutil.which(program, path=Path(sys.executable).parent)
    if path is None:
        pytest.skip(f"not run: no {program}")
    script = tmp_path / "train.py"
    script.write_text(_TRAIN)
    environment = toy.environment(DS_ACCELERATOR="cpu")
    done = run(path, *options, "-n", count, sys.executable, *nested, script, env=environment)
    assert done.returncode == 0, done.stderr
    size = "2" if nested else str(count)
    joined = sorted(file.read_text().split() for file in tmp_path.glob("train.py.*"))
    assert joined == [[rank, size, rank, rank] for rank in "01"[: int(size)]]


@pytest.mark.parametrize("given", [{"PMIX_RANK": "1"}, *_BEYOND], ids=str)
def test_wrong_rank_is_an_error(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidEnvironment, match="RANK" if len(given) > 1 else "WORLD_SIZE"):
        distributed.explained(lambda: pytest.fail("called"), lambda: None)()
