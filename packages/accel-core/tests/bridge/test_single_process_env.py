# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`python train.py` without a launcher is a job of one rank; whatever says which rank this is stays in charge."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from accel_core.upstream import distributed

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "ACCEL_STORE_ADDRESS")


@pytest.fixture(autouse=True)
def without_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "module_exists", lambda name: False)


def test_without_a_launcher_the_variables_of_one_rank_are_set() -> None:
    environ = {"HOME": "/root"}
    assert distributed.single_process_env({}, environ) == NAMES
    assert [environ[name] for name in NAMES[:4]] == ["0", "1", "0", "127.0.0.1"]
    assert environ["ACCEL_STORE_ADDRESS"] == "127.0.0.1"
    assert 0 < int(environ["MASTER_PORT"]) < 65536


def test_an_address_that_is_set_stays() -> None:
    environ = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4000"}
    assert distributed.single_process_env({}, environ) == NAMES[:3]
    assert (environ["MASTER_ADDR"], environ["MASTER_PORT"]) == ("10.0.0.1", "4000")


@pytest.mark.parametrize(
    "launched",
    [
        "RANK=1", "WORLD_SIZE=2", "PMI_RANK=0", "OMPI_COMM_WORLD_RANK=1", "SLURM_STEP_NUM_TASKS=4",
        "AZUREML_EXPERIMENT_ID=x",
    ],
)  # fmt: skip
def test_a_process_of_a_launcher_is_left_alone(launched: str) -> None:
    given = dict([launched.split("=")])
    environ = dict(given)
    assert distributed.single_process_env({}, environ) == ()
    assert environ == given


def test_a_batch_script_of_slurm_is_a_job_of_one() -> None:
    assert distributed.single_process_env({}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) == NAMES


@pytest.mark.parametrize(
    "arguments",
    [{"auto_mpi_discovery": False}, {"dist_init_required": False}, {"rank": 0}, {"world_size": 2}],
    ids=lambda arguments: next(iter(arguments)),
)
def test_arguments_that_say_it_are_left_alone(arguments: dict[str, Any]) -> None:
    assert distributed.single_process_env(arguments, {}) == ()


def test_mpi4py_finds_the_rank_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "module_exists", lambda name: name == "mpi4py")
    assert distributed.single_process_env({}, {}) == ()


def test_a_process_group_that_exists_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("torch.distributed")
    fake.is_available = fake.is_initialized = lambda: True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.distributed", fake)
    assert distributed.single_process_env({}, {}) == ()


def test_a_failure_leaves_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(dist_backend: str) -> None:
        raise ValueError(distributed.os.environ["RANK"])

    class Device:
        def device_count(self) -> int:
            return 1

    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=r"^0$"):
        distributed.explained(failing, Device)("gloo")
    assert not [name for name in NAMES if name in distributed.os.environ]


@pytest.mark.upstream
def test_a_program_without_a_launcher_trains_alone(children: Any, toy: Path) -> None:
    snippet = """
        import deepspeed, json, os, socket, torch
        deepspeed.init_distributed(dist_backend="gloo")
        total = torch.ones(1)
        torch.distributed.all_reduce(total)
        other = socket.socket().connect_ex(("127.0.0.2", int(os.environ["MASTER_PORT"])))
        print(json.dumps([torch.distributed.get_world_size(), total.item(), os.environ["LOCAL_RANK"], other != 0]))
    """
    found = children.run(snippet, [toy], DS_ACCELERATOR="cpu").report
    assert found == [1, 1.0, "0", True], "its store listens on 127.0.0.1 alone"
