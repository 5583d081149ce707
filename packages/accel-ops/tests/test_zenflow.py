# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ZenFlow's overlapped step: the process that takes it, and what the training sees of it."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

import pytest
import torch

from accel_core.errors import FunctionNotImplemented, InvalidOpArgument
from accel_ops.errors import OverlappedStepFailed
from accel_ops.optimizers import cpu_steps, zenflow
from accel_ops.optimizers.host import CPUAdamBuilder
from shared.children import run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="not run: Linux, whose semaphores it uses")
_OPTIONS = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.01}
_OPTIMIZER = 4711
#: Seconds; a guard against hangs: on a busy machine, a process takes long to begin.
PATIENCE = 300


class Group:
    """Tensors of a parameter group, as DeepSpeed shares them with the process."""

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        torch.manual_seed(size)
        self.param = torch.randn(size).to(dtype).share_memory_()
        self.grads = [torch.randn(size).to(dtype).share_memory_() for _ in range(2)]
        self.stale = torch.zeros(size, dtype=dtype).share_memory_()

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self.param, *self.grads, self.stale


def work(groups: list[tuple[torch.Tensor, ...]], control: torch.Tensor) -> None:
    """What DeepSpeed's optimizer process does."""
    op = CPUAdamBuilder().load()
    op.create_adam(_OPTIMIZER, 1e-3, 0.9, 0.999, 1e-8, 0.0, True, False)
    handle = op.zenflow_adam_create(_OPTIMIZER, [])
    for param, grad0, grad1, stale in groups:
        moments = [torch.zeros_like(param) for _ in range(4)]
        op.zenflow_adam_register_group(handle, param, grad0, grad1, *moments, stale)
    op.zenflow_adam_run_worker(handle, control.data_ptr())
    op.zenflow_adam_destroy(handle)
    op.destroy_adam(_OPTIMIZER)


@pytest.fixture
def control() -> torch.Tensor:
    made = torch.zeros(zenflow.ctrl_size(), dtype=torch.uint8).share_memory_()
    zenflow.ctrl_init(made.data_ptr(), 2)
    return made


@pytest.fixture
def groups() -> list[Group]:
    return [Group(1000, torch.float32), Group(37, torch.bfloat16)]


@pytest.fixture
def worker(control: torch.Tensor, groups: list[Group], threads: None) -> Iterator[threading.Thread]:
    """A worker in a thread of this process; an error of its is not the test's."""

    def run() -> None:
        try:
            work([group.tensors for group in groups], control)
        except Exception as error:
            seen.append(error)

    seen: list[Exception] = []
    thread = threading.Thread(target=run)
    thread.start()
    yield thread
    zenflow.ctrl_exit(control.data_ptr())
    thread.join(PATIENCE)
    assert not thread.is_alive()


def submit(control: torch.Tensor, state: int, step: int, **changed: Any) -> None:
    options = {name: [value, value / 2] for name, value in _OPTIONS.items()} | changed
    zenflow.submit(control.data_ptr(), state, step, **options, bias_correction=[1, 0])


def take_steps(control: torch.Tensor, count: int) -> None:
    for step in range(1, count + 1):
        submit(control, step & 1, step)
        assert zenflow.wait(control.data_ptr(), PATIENCE)


def expected(group: Group, index: int, count: int) -> torch.Tensor:
    """The parameters after as many steps of `cpu_steps.adam`, with a pair of moments for each state."""
    param = group.param.clone()
    moments = [[torch.zeros_like(param) for _ in range(2)] for _ in range(2)]
    options = {name: value / (1 + index) for name, value in _OPTIONS.items()}
    for step in range(1, count + 1):
        first, second = moments[step & 1]
        cpu_steps.adam(
            [param], [group.grads[step & 1]], [first], [second],
            step=step, bias_correction=not index, **options,
        )  # fmt: skip
    return param


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("awaited", [True, False], ids=["each awaited", "the last awaited"])
def test_steps_are_those_of_the_kernel(control, groups, awaited):
    wanted = [expected(group, index, 6) for index, group in enumerate(groups)]
    for step in range(1, 7):
        submit(control, step & 1, step)
        if awaited or step == 6:
            assert zenflow.wait(control.data_ptr(), PATIENCE)
    for group, want in zip(groups, wanted, strict=True):
        assert torch.equal(group.param, want)
        assert torch.equal(group.stale, want)


def test_a_process_takes_steps_until_it_is_killed(control, groups):
    wanted = [expected(group, index, 3) for index, group in enumerate(groups)]
    tensors = [group.tensors for group in groups]
    process = get_context("spawn").Process(target=work, args=(tensors, control), daemon=True)
    process.start()
    take_steps(control, 3)
    process.kill()
    for group, want in zip(groups, wanted, strict=True):
        assert torch.equal(group.stale, want)
    submit(control, 0, 4)
    for _ in range(2):
        with pytest.raises(OverlappedStepFailed, match="no process any more"):
            zenflow.wait(control.data_ptr(), PATIENCE)
    process.join()
    with pytest.raises(OverlappedStepFailed, match="no process any more"):
        submit(control, 0, 5)


@pytest.mark.usefixtures("worker")
def test_an_error_of_the_worker_is_raised_where_its_step_is_awaited(control):
    submit(control, 0, 0)  # steps count from 1
    for _ in range(2):
        with pytest.raises(OverlappedStepFailed, match=r"ended: .*step=0"):
            zenflow.wait(control.data_ptr(), PATIENCE)
    with pytest.raises(OverlappedStepFailed, match=r"ended: .*step=0"):
        submit(control, 0, 1)


def test_waiting_ends_after_the_time(control):
    submit(control, 0, 1)
    assert not zenflow.wait(control.data_ptr(), 0.01)


@pytest.mark.usefixtures("worker")
def test_waiting_without_a_submitted_step_ends_after_the_time(control):
    """As DeepSpeed's: a loop that asks again and again looks in between whether the worker lives."""
    assert zenflow.wait(control.data_ptr(), 0.01) is False
    take_steps(control, 2)
    assert zenflow.wait(control.data_ptr(), 0.01) is False


_STARTS_A_WORKER = """
import os, torch
from accel_ops.optimizers import zenflow
from accel_ops.optimizers.host import CPUAdamBuilder
zenflow._LOOK_FOR_PARENT = 0.1
control = torch.zeros(zenflow.ctrl_size(), dtype=torch.uint8).share_memory_()
zenflow.ctrl_init(control.data_ptr(), 0)
pid = os.fork()
if pid == 0:
    op = CPUAdamBuilder().load()
    op.create_adam(0)
    op.zenflow_adam_run_worker(op.zenflow_adam_create(0, [0]), control.data_ptr())
    os._exit(0)
print(pid, flush=True)
os._exit(1)
"""


def test_a_worker_ends_with_the_process_that_started_it():
    ended = run(sys.executable, "-c", _STARTS_A_WORKER)
    assert ended.returncode == 1
    deadline = time.monotonic() + PATIENCE
    while os.path.exists(f"/proc/{ended.stdout.strip()}"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_more_groups_than_the_control_block_holds_are_refused(control):
    with pytest.raises(InvalidOpArgument, match="1025 parameter groups"):
        zenflow.ctrl_init(control.data_ptr(), zenflow.MAX_GROUPS + 1)


def test_a_platform_without_shared_semaphores_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(FunctionNotImplemented, match="this is darwin"):
        CPUAdamBuilder().load().zenflow_adam_ctrl_size()
