# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a kernel can not take is refused with a reason; what it can take is never silently wrong."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import psutil
import pytest
import torch

from accel_host import kernels, optim
from accel_host.errors import InvalidTensors

ADAM: dict[str, Any] = {"step": 1, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}


def four(**others: torch.Tensor) -> list[list[torch.Tensor]]:
    names = ("params", "grads", "exp_avgs", "exp_avg_sqs")
    return [[others.get(name, torch.ones(6))] for name in names]


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"grads": torch.ones(5)}, "5 elements beside a parameter of 6"),
        ({"params": torch.ones(6, dtype=torch.float64)}, "params of torch.float64"),
        ({"grads": torch.ones(6, dtype=torch.int32)}, "grads of torch.int32"),
        ({"exp_avgs": torch.ones(6, device="meta")}, "exp_avgs|first of torch.float32 on meta"),
        ({"grads": torch.eye(6)[0].to_sparse()}, "sparse"),
        ({"exp_avgs": torch.ones(6, dtype=torch.bfloat16)}, "two states of different types"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(others: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(InvalidTensors, match=message):
        kernels.adam(*four(**others), **ADAM)


@pytest.mark.usefixtures("either_way")
def test_written_tensors_that_share_memory_are_refused() -> None:
    one = torch.ones(12)
    for params, exp_avgs in ((one[:6], one[:6]), (one[:6], one[5:11])):
        with pytest.raises(InvalidTensors, match="share memory"):
            kernels.adam(*four(params=params, exp_avgs=exp_avgs), **ADAM)


def test_a_gradient_may_be_the_parameter_itself() -> None:
    """Nothing writes gradients: the step reads each element before it writes it."""
    shared, alone = torch.ones(6), torch.ones(6)
    kernels.adam(*four(params=shared, grads=shared), **ADAM)
    kernels.adam(*four(params=alone), **ADAM)
    assert torch.equal(shared, alone)


def test_lists_of_unequal_length_are_refused() -> None:
    lists = four()
    lists[1] = []
    with pytest.raises(InvalidTensors, match="0 grads"):
        kernels.adam(*lists, **ADAM)


def test_step_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="count from 1"):
        kernels.adam(*four(), **{**ADAM, "step": 0})


@pytest.mark.usefixtures("either_way")
def test_no_tensors_and_empty_tensors_are_nothing_to_do() -> None:
    kernels.adam([], [], [], [], **ADAM)
    kernels.adam(*[[torch.empty(0, 3)] for _ in range(4)], **ADAM)
    assert kernels.sum_of_squares([]) == 0.0
    assert kernels.sum_of_squares([torch.empty(0)]) == 0.0


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_gradient_reaches_its_parameter_and_no_other(bad: float) -> None:
    for step in (
        lambda p, g: kernels.adam([p], [g], [torch.zeros(6)], [torch.zeros(6)], **ADAM),
        lambda p, g: kernels.adagrad([p], [g], [torch.zeros(6)], lr=0.1, eps=1e-8),
        lambda p, g: kernels.sgd([p], [g], [torch.zeros(6)], lr=0.1, momentum=0.9),
    ):
        params, grads = torch.ones(6), torch.ones(6)
        grads[2] = bad
        step(params, grads)
        assert not params[2].isfinite()
        assert params[[0, 1, 3, 4, 5]].isfinite().all()


def test_amsgrad_is_refused_and_a_sparse_gradient_too() -> None:
    param = torch.nn.Parameter(torch.ones(2, 2))
    with pytest.raises(ValueError, match="no amsgrad"):
        optim.AdamW([param], amsgrad=True)
    param.grad = torch.eye(2).to_sparse()
    with pytest.raises(InvalidTensors, match="sparse"):
        optim.AdamW([param]).step()


def test_a_state_dict_goes_to_torch_and_back() -> None:
    for ours, torchs in ((optim.AdamW, torch.optim.AdamW), (optim.Adagrad, torch.optim.Adagrad)):
        param = torch.nn.Parameter(torch.ones(4))
        param.grad = torch.ones(4)
        mine = ours([param])
        mine.step()
        saved = copy.deepcopy(mine.state_dict())
        theirs = torchs([torch.nn.Parameter(param.detach().clone())])
        theirs.load_state_dict(mine.state_dict())
        twin = theirs.param_groups[0]["params"][0]
        twin.grad = torch.ones(4)
        theirs.step()
        again = ours([torch.nn.Parameter(param.detach().clone())])
        again.load_state_dict(saved)
        other = again.param_groups[0]["params"][0]
        other.grad = torch.ones(4)
        again.step()
        assert torch.allclose(twin, other, atol=1e-6)
        assert theirs.state_dict()["state"][0].keys() == again.state_dict()["state"][0].keys()


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
# torch's own operators would wait for threads that are not there; only our kernel runs in the child.
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
