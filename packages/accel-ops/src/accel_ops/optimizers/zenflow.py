# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ZenFlow's overlapped step: a process that takes Adam's steps while the training goes on.

DeepSpeed (`deepspeed.runtime.zenflow.zenflow_utils`) starts the process and shares the tensors with it; the functions
here are upstream's. The two processes exchange a `Control` in shared memory: `submit` writes the options of a step and
posts one semaphore, `run_worker` takes the step and posts the other one, for which `wait` waits.

DeepSpeed submits the second step without warm-up before the first is done. Upstream then overwrites options that its
worker may not have read. Here `submit` waits for the worker, and `wait` for all steps that
were submitted. Upstream's worker waits for ever, and its other side learns after a minute that the worker has ended.
Here the worker ends with the process that started it, and its end is an error in that process at once.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import sys
import threading
import time
from collections.abc import Sequence
from ctypes import c_byte, c_char, c_double, c_int32, c_int64
from dataclasses import dataclass, field
from typing import Any

import torch

from accel_core.errors import FunctionNotImplemented, InvalidOpArgument, in_short
from accel_ops.errors import OverlappedStepFailed
from accel_ops.optimizers import cpu_steps

#: Parameter groups that one control block has room for, as many as upstream's.
MAX_GROUPS = 1024
#: Seconds after which a waiting worker looks whether its parent is still there.
_LOOK_FOR_PARENT = 5.0
#: Seconds after which a waiting training looks whether the worker is still there.
_LOOK_FOR_WORKER = 1.0
_STEP, _EXIT = range(2)


class _Options(ctypes.Structure):
    """Options of a step of one group. They stay float64, as in `adam_update`."""

    _fields_ = (
        ("lr", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("bias_correction", c_int64),
    )


class Control(ctypes.Structure):
    """Memory that the two processes share. A `sem_t` has 32 bytes on 64-bit Linux; here is room for 64.

    ready:   posted when a command is written. idle: posted when the worker, if there is one, has carried it out.
    pending: steps that were submitted and not waited for.
    owner:   the process that has prepared it. worker: the one that takes the steps, 0 before it does.
    failure: text of the error with which the worker has ended, empty if it has not.
    """

    _fields_ = (
        ("ready", c_byte * 64),
        ("idle", c_byte * 64),
        ("command", c_int32),
        ("state", c_int32),
        ("step", c_int64),
        ("groups", c_int64),
        ("pending", c_int64),
        ("owner", c_int64),
        ("worker", c_int64),
        ("failure", c_char * 1024),
        ("options", _Options * MAX_GROUPS),
    )


@dataclass
class _Group:
    """Tensors of one parameter group; gradients and moments are pairs, of which a step uses the one of its state."""

    param: torch.Tensor
    grads: tuple[torch.Tensor, torch.Tensor]
    exp_avgs: tuple[torch.Tensor, torch.Tensor]
    exp_avg_sqs: tuple[torch.Tensor, torch.Tensor]
    stale: torch.Tensor | None


@dataclass
class _Worker:
    """decoupled: whether the decay is. threads: of a step."""

    decoupled: bool
    threads: int
    groups: list[_Group] = field(default_factory=list)


class ZenFlow:
    """Upstream's functions of ZenFlow, without the prefix `zenflow_adam_`.

    decoupled: by optimizer ID, whether the decay is decoupled.
    """

    def __init__(self, decoupled: Any) -> None:
        self._decoupled = decoupled
        self._workers: dict[int, _Worker] = {}
        self._handles = itertools.count()
        self._lock = threading.Lock()

    def create(self, optimizer_id: int, affinity: Sequence[int]) -> int:
        """Return a handle for a worker that uses as many threads as there are cores; none count as one."""
        worker = _Worker(self._decoupled[optimizer_id], max(1, len(affinity)))
        with self._lock:
            handle = next(self._handles)
            self._workers[handle] = worker
        return handle

    def register_group(
        self,
        handle: int,
        param: torch.Tensor,
        grad0: torch.Tensor,
        grad1: torch.Tensor,
        exp_avg0: torch.Tensor,
        exp_avg1: torch.Tensor,
        exp_avg_sq0: torch.Tensor,
        exp_avg_sq1: torch.Tensor,
        stale: torch.Tensor | None,
    ) -> None:
        """Add a parameter group; `stale` receives a copy of the parameters at each step."""
        group = _Group(param, (grad0, grad1), (exp_avg0, exp_avg1), (exp_avg_sq0, exp_avg_sq1), stale)
        self._workers[handle].groups.append(group)

    def destroy(self, handle: int) -> None:
        """Forget the worker and its tensors."""
        self._workers.pop(handle, None)

    def run_worker(self, handle: int, address: int) -> None:
        """Take steps until `ctrl_exit`, or until the parent process, which called `ctrl_init`, has ended."""
        worker, control = self._workers[handle], Control.from_address(address)
        control.worker = os.getpid()
        torch.set_num_threads(worker.threads)
        while True:
            while not _wait(control.ready, _LOOK_FOR_PARENT):
                if control.owner not in (os.getpid(), os.getppid()):
                    return
            if control.command == _EXIT:
                return
            try:
                _take_step(worker, control)
            except BaseException as error:
                text = in_short(error) or type(error).__name__
                control.failure = text.encode()[: Control.failure.size - 1]
                _post(control.idle)
                raise
            _post(control.idle)


def ctrl_size() -> int:
    """Return the bytes of a control block. Raises FunctionNotImplemented where processes cannot share semaphores."""
    if sys.platform != "linux":
        raise FunctionNotImplemented(
            f"ZenFlow cannot overlap the optimizer's step: this is {sys.platform}, and it needs Linux",
            do='set "overlap_step": false in the zenflow section of the configuration',
        )
    return ctypes.sizeof(Control)


def ctrl_init(address: int, num_groups: int) -> None:
    """Prepare a control block of `ctrl_size()` zeros."""
    if not 0 <= num_groups <= MAX_GROUPS:
        raise InvalidOpArgument(
            f"ZenFlow cannot overlap the optimizer's step: {num_groups} parameter groups; expected at "
            f"most {MAX_GROUPS}",
            do='pass fewer parameter groups, or set "overlap_step": false in the zenflow section',
        )
    control = Control.from_address(address)
    control.groups, control.owner = num_groups, os.getpid()
    for semaphore, value in ((control.ready, 0), (control.idle, 1)):
        _check(_libc().sem_init(semaphore, 1, value))


def submit(
    address: int,
    state: int,
    step: int,
    lr: Sequence[float],
    beta1: Sequence[float],
    beta2: Sequence[float],
    eps: Sequence[float],
    weight_decay: Sequence[float],
    bias_correction: Sequence[int],
) -> None:
    """Let the worker take a step with the gradients and moments of a state, 0 or 1; options are by group.

    Raises OverlappedStepFailed where the worker has ended.
    """
    control = Control.from_address(address)
    while not _is_idle(control, _LOOK_FOR_WORKER):
        pass
    options = zip(lr, beta1, beta2, eps, weight_decay, map(bool, bias_correction), strict=True)
    for index, each in enumerate(options):
        control.options[index] = _Options(*each)
    control.state, control.step, control.command = state, step, _STEP
    control.pending += 1
    _post(control.ready)


def wait(address: int, seconds: float) -> bool:
    """Return True once for each submitted step, when it is taken; False after the time. Raises OverlappedStepFailed."""
    control, deadline = Control.from_address(address), time.monotonic() + seconds
    while (left := min(deadline - time.monotonic(), _LOOK_FOR_WORKER)) > 0:
        if _is_idle(control, left):
            _post(control.idle)
            if control.pending:
                control.pending -= 1
                return True
            time.sleep(left)  # nothing to wait for: a worker that ends is noticed still
    return False


def _is_idle(control: Control, seconds: float) -> bool:
    """Take the semaphore of the idle worker; return False where it still works after the time."""
    idle = _wait(control.idle, seconds)
    found = control.failure.decode(errors="replace")
    if not idle and not found and control.worker and not _runs(control.worker):
        found = "no process any more: a signal has ended it, or the system for want of memory"
    if found:
        if idle:
            _post(control.idle)  # the next caller gets the same error
        raise OverlappedStepFailed(
            f"ZenFlow's optimizer process has ended: {found}",
            do="see what that process has written, above; restart from a checkpoint",
        )
    return idle


def _runs(process: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return not os.path.isdir("/proc/self")  # without /proc nobody knows


def ctrl_exit(address: int) -> None:
    """Let the worker return."""
    control = Control.from_address(address)
    control.command = _EXIT
    _post(control.ready)


def _take_step(worker: _Worker, control: Control) -> None:
    state = control.state
    for group, o in zip(worker.groups, control.options[: control.groups], strict=True):
        cpu_steps.adam(
            [group.param], [group.grads[state]], [group.exp_avgs[state]], [group.exp_avg_sqs[state]],
            step=control.step, lr=o.lr, beta1=o.beta1, beta2=o.beta2, eps=o.eps, weight_decay=o.weight_decay,
            decoupled=worker.decoupled, bias_correction=bool(o.bias_correction),
            copies=None if group.stale is None else [group.stale],
        )  # fmt: skip


class _Time(ctypes.Structure):
    """`timespec`."""

    _fields_ = (("seconds", c_int64), ("nanoseconds", c_int64))


def _libc() -> Any:
    # Calls release the GIL. The semaphores of multiprocessing have names and are inherited; these lie in a tensor.
    return ctypes.CDLL(None, use_errno=True)


def _post(semaphore: Any) -> None:
    _check(_libc().sem_post(semaphore))


def _wait(semaphore: Any, seconds: float) -> bool:
    """Return False where the semaphore was not posted in time."""
    nanoseconds = time.time_ns() + int(seconds * 1e9)
    deadline = _Time(*divmod(nanoseconds, 10**9))
    libc = _libc()
    while libc.sem_timedwait(semaphore, ctypes.byref(deadline)):
        number = ctypes.get_errno()
        if number == errno.ETIMEDOUT:
            return False
        if number != errno.EINTR:  # after a signal, whose handler Python runs here
            _check(-1)
    return True


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
