# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ZenFlow's overlapped step: the process that takes it, and what the training sees of it."""

import contextlib
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


Group = tuple[torch.Tensor, ...]


def group(size: int, dtype: torch.dtype) -> Group:
    """Parameter, two gradients, and a stale copy of the parameter, as DeepSpeed shares them with the process."""
    made = [torch.randn(size).to(dtype) for _ in range(3)]
    return tuple(tensor.share_memory_() for tensor in (*made, torch.zeros_like(made[0])))


def work(groups: list[Group], control: torch.Tensor) -> None:
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
    return [group(1000, torch.float32), group(37, torch.bfloat16)]


@pytest.fixture
def worker(control: torch.Tensor, groups: list[Group], threads: None) -> Iterator[threading.Thread]:
    """A worker in a thread of this process; an error of its is not the test's."""

    def run() -> None:
        with contextlib.suppress(Exception):
            work(groups, control)

    thread = threading.Thread(target=run)
    thread.start()
    yield thread
    zenflow.ctrl_exit(control.data_ptr())
    thread.join(PATIENCE)
    assert not thread.is_alive()


def submit(control: torch.Tensor, state: int, step: int, **changed: Any) -> None:
    options = {name: [value, value / 2] for name, value in _OPTIONS.items()} | changed
    zenflow.submit(control.data_ptr(), state, step, **options, bias_correction=[1, 0])


def expected(groups: list[Group], count: int) -> list[torch.Tensor]:
    """The parameters after as many steps of `cpu_steps.adam`, with a pair of moments for each state."""
    made = []
    for index, (start, *grads, _) in enumerate(groups):
        param, moments = start.clone(), [[torch.zeros_like(start) for _ in range(2)] for _ in range(2)]
        options = {name: value / (1 + index) for name, value in _OPTIONS.items()}
        for step in range(1, count + 1):
            lists = [[each] for each in (param, grads[step & 1], *moments[step & 1])]
            cpu_steps.adam(*lists, step=step, bias_correction=not index, **options)
        made.append(param)
    return made


def test_a_process_takes_steps_until_it_is_killed(control, groups):
    wanted = expected(groups, 6)
    process = get_context("spawn").Process(target=work, args=(groups, control), daemon=True)
    process.start()
    for step in range(1, 7):
        submit(control, step & 1, step)
        if step != 5:  # also a step that is not waited for
            assert zenflow.wait(control.data_ptr(), PATIENCE)
    assert zenflow.wait(control.data_ptr(), PATIENCE)
    assert not zenflow.wait(control.data_ptr(), 0.01)
    process.kill()
    for (param, *_, stale), want in zip(groups, wanted, strict=True):
        assert torch.equal(param, want)
        assert torch.equal(stale, want)
    submit(control, 0, 7)
    for _ in range(2):
        with pytest.raises(OverlappedStepFailed, match="no process any more"):
            zenflow.wait(control.data_ptr(), PATIENCE)
    process.join()
    with pytest.raises(OverlappedStepFailed, match="no process any more"):
        submit(control, 0, 8)


@pytest.mark.usefixtures("worker")
def test_worker_returns_at_the_exit(control, groups):
    """The fixture lets it return, and waits for that."""
    wanted = expected(groups, 1)
    submit(control, 1, 1)
    assert zenflow.wait(control.data_ptr(), PATIENCE)
    assert all(torch.equal(param, want) for (param, *_), want in zip(groups, wanted, strict=True))


@pytest.mark.usefixtures("worker")
def test_an_error_of_the_worker_is_raised_where_its_step_is_awaited(control):
    submit(control, 0, 0)  # steps count from 1
    for _ in range(2):
        with pytest.raises(OverlappedStepFailed, match=r"ended: .*step=0"):
            zenflow.wait(control.data_ptr(), PATIENCE)
    with pytest.raises(OverlappedStepFailed, match=r"ended: .*step=0"):
        submit(control, 0, 1)


@pytest.mark.parametrize("steps", [0, 1], ids=["without a step", "without a worker"])
def test_waiting_ends_after_the_time(control, steps):
    """As DeepSpeed's: a loop that asks again and again looks in between whether the worker lives."""
    for step in range(steps):
        submit(control, 0, step + 1)
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
