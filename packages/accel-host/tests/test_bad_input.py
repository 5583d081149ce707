# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Input that a kernel does not support is refused with a reason; other input never gives a wrong result silently."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import psutil
import pytest
import torch

from accel_host import kernels
from accel_host.errors import InvalidTensors

ADAM: dict[str, Any] = {"step": 1, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}


def four(**others: torch.Tensor) -> list[list[torch.Tensor]]:
    names = ("params", "grads", "exp_avgs", "exp_avg_sqs")
    return [[others.get(name, torch.ones(6))] for name in names]


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"grads": torch.ones(5)}, "5 elements for a parameter of 6"),
        ({"params": torch.ones(6, dtype=torch.float64)}, "params of torch.float64"),
        ({"grads": torch.ones(6, dtype=torch.int32)}, "grads of torch.int32"),
        ({"exp_avgs": torch.ones(6, device="meta")}, "exp_avgs|first of torch.float32 on meta"),
        ({"grads": torch.eye(6)[0].to_sparse()}, "sparse"),
        ({"exp_avgs": torch.ones(6, dtype=torch.bfloat16)}, "two states of different dtypes"),
        ({"grads": torch._neg_view(torch.ones(6))}, "negative bit set"),
    ],
)
def test_unsupported_tensors_are_refused(others: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(InvalidTensors, match=message):
        kernels.adam(*four(**others), **ADAM)


def test_lists_of_unequal_length_are_refused() -> None:
    lists = four()
    lists[1] = []
    with pytest.raises(InvalidTensors, match="0 grads"):
        kernels.adam(*lists, **ADAM)


def test_step_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="count from 1"):
        kernels.adam(*four(), **{**ADAM, "step": 0})


@pytest.mark.usefixtures("with_and_without_library")
def test_no_tensors_and_empty_tensors_are_accepted() -> None:
    kernels.adam([], [], [], [], **ADAM)
    kernels.adam(*[[torch.empty(0, 3)] for _ in range(4)], **ADAM)
    assert kernels.sum_of_squares([]) == 0.0
    assert kernels.sum_of_squares([torch.empty(0)]) == 0.0


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_gradient_reaches_its_parameter_and_no_other(bad: float) -> None:
    for step in (
        lambda p, g: kernels.adam([p], [g], [torch.zeros(6)], [torch.zeros(6)], **ADAM),
        lambda p, g: kernels.adagrad([p], [g], [torch.zeros(6)], lr=0.1, eps=1e-8),
        lambda p, g: kernels.lion([p], [g], [torch.zeros(6)], lr=0.1, beta1=0.9, beta2=0.99),
        lambda p, g: kernels.sgd([p], [g], [torch.zeros(6)], lr=0.1, momentum=0.9),
    ):
        params, grads = torch.ones(6), torch.ones(6)
        grads[2] = bad
        step(params, grads)
        # Lion uses the sign of the gradient alone, and infinity has a sign.
        assert not params[2].isfinite() or (bad == float("inf") and params[2] == params[1] == 0.9)
        assert params[[0, 1, 3, 4, 5]].isfinite().all()


@pytest.mark.parametrize("beta1", [0.0, 0.9])
def test_a_step_that_cannot_be_undone_is_not_rolled_back(beta1: float) -> None:
    beta2 = 0.99 if beta1 == 0 else 0.0
    with pytest.raises(ValueError, match="cannot be undone"):
        kernels.adam(*four(), **{**ADAM, "beta1": beta1, "beta2": beta2}, rollback=True)


_WITHOUT_MEMORY = """
import sys, torch
from accel_host import kernels, optim
from accel_host.errors import InvalidTensors
form = sys.argv[1]
if form == "DTensor":
    import os, torch.distributed as dist
    from torch.distributed.tensor import distribute_tensor, init_device_mesh
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    mesh = init_device_mesh("cpu", (1,))
    make = lambda: distribute_tensor(torch.ones(4), mesh)
elif form == "fake":
    from torch._subclasses import FakeTensorMode
    mode = FakeTensorMode()
    make = lambda: mode.from_tensor(torch.ones(4))
elif form == "meta":
    make = lambda: torch.ones(4, device="meta")
else:
    def make():
        tensor = torch.ones(4)
        tensor.untyped_storage().resize_(0)
        return tensor
refused = 0
for optimizer in (optim.AdamW, optim.Adagrad, optim.Lion):
    param = torch.nn.Parameter(torch.ones(4) if form == "freed" else make())
    param.grad = make()
    try:
        optimizer([param]).step()
    except InvalidTensors:
        refused += 1
kernels.zeros_like([make()] if form != "freed" else [])
assert refused == 3, refused
"""


@pytest.mark.parametrize("form", ["meta", "fake", "DTensor", "freed"])
def test_a_tensor_without_memory_of_its_own_is_refused(form: str) -> None:
    """In a process of its own, which a tensor that is not refused crashes."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _WITHOUT_MEMORY, form],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


_FORKED = """
import os, sys
import torch
from accel_host import kernels
torch.set_num_threads(2)
rows = [[[torch.ones(200_000)] for _ in range(4)] for _ in range(2)]
def step(row):
    kernels.adam(*row, step=1, lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8)
    return float(row[0][0][-1])
here = step(rows[0])
# torch's own operators would wait for threads that do not exist; only our kernel runs in the child.
child = os.fork()
if child == 0:
    os._exit(0 if step(rows[1]) == here else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_forked_after_threads_ran_can_step_too() -> None:
    assert subprocess.run([sys.executable, "-c", _FORKED], timeout=120, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["direct", "through buffers"])
def test_more_than_two_to_the_31_elements(dtype: torch.dtype) -> None:
    """Indices are 64 bits wide: the last elements are stepped on, and only once."""
    count = 2**31 + 5
    needed, free = 3 * count * dtype.itemsize, psutil.virtual_memory().available
    if free < needed + 2**30:
        pytest.skip(f"not run: {free >> 20} MiB are free, {needed >> 20} MiB and one GiB are needed")
    params, grads, buffers = (torch.zeros(count, dtype=dtype) for _ in range(3))
    grads[-3:] = 1
    kernels.sgd([params], [grads], [buffers], lr=1.0, momentum=0.0)
    assert params[-3:].tolist() == [-1.0] * 3
    assert params[-4] == 0
    assert kernels.sum_of_squares([grads]) == 3.0
