# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Input that a kernel does not support is refused with a reason; other input never gives a wrong result silently."""

import sys
from collections.abc import Callable
from typing import Any

import numpy
import psutil
import pytest
import torch
from torch._subclasses import FakeTensorMode

from accel_core.errors import InvalidOpArgument
from accel_ops.optimizers import cpu_steps
from accel_ops.optimizers.host import CPUAdamBuilder
from shared.children import run

BETAS: dict[str, Any] = {"beta1": 0.9, "beta2": 0.99}
ADAM: dict[str, Any] = {"step": 1, "lr": 0.1, **BETAS, "eps": 1e-8}


def four(**others: Any) -> list[list[torch.Tensor]]:
    names = ("params", "grads", "exp_avgs", "exp_avg_sqs")
    given = [others.get(name, torch.ones(6)) for name in names]
    return [[each] if isinstance(each, torch.Tensor) else each for each in given]


def freed() -> torch.Tensor:
    tensor = torch.ones(6)
    tensor.untyped_storage().resize_(0)
    return tensor


def updated(**options: Any) -> torch.Tensor:
    """The parameter after a call of DeepSpeed's function on tensors of ones."""
    op = CPUAdamBuilder().load()
    op.create_adam(5)
    given = {**ADAM, "step": 2, "weight_decay": 0.0, **options}
    tensors = [torch.ones(6) for _ in range(4)]
    op.adam_update(5, *given.values(), True, *tensors)
    return tensors[0]


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
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
        ({"params": torch._neg_view(torch.ones(6))}, "params .*negative bit set"),
        ({"grads": torch._neg_view(torch.ones(6))}, "grads .*negative bit set"),
        ({"exp_avgs": torch._neg_view(torch.ones(6))}, "first .*negative bit set"),
        ({"exp_avg_sqs": torch._neg_view(torch.ones(6))}, "second .*negative bit set"),
        ({"params": torch.ones(6, dtype=torch.complex64).conj().imag}, "negative bit set"),
        ({"params": torch.ones(6, dtype=torch.complex64).conj()}, "params of torch.complex64"),
        ({"grads": freed()}, "without memory"),
        ({"grads": FakeTensorMode().from_tensor(torch.ones(6))}, "FakeTensor|meta|without memory"),
        ({"grads": []}, "0 grads"),
    ],
)
def test_unsupported_tensors_are_refused(others, message):
    with pytest.raises(InvalidOpArgument, match=message):
        cpu_steps.adam(*four(**others), **ADAM)


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("option", ["step", "lr", "beta1", "beta2", "eps", "weight_decay"])
@pytest.mark.parametrize(
    "value", [None, "x", torch.ones(2), [1], pytest.param(object(), id="object")], ids=repr
)
def test_an_option_that_is_no_number_is_named(option, value):
    with pytest.raises(InvalidOpArgument, match=rf"{option}.*ACC-504"):
        updated(**{option: value})


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize(
    "value", [2.0, 0, -1, 2**63, torch.tensor(0.5), float("nan"), torch.tensor(float("inf"))]
)
def test_a_step_that_is_no_number_from_one_is_refused(value):
    with pytest.raises(InvalidOpArgument, match="count from 1"):
        updated(step=value)


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("step", [torch.tensor(2.0), torch.tensor(2), numpy.int64(2), True + 1], ids=repr)
@pytest.mark.parametrize("lr", [torch.tensor(0.125), numpy.float32(0.125), 0.125], ids=repr)
def test_tensors_of_one_element_are_numbers_as_upstream_takes_them(step, lr):
    assert torch.equal(updated(step=step, lr=lr), updated(step=2, lr=0.125))


@pytest.mark.parametrize(("kernel", "betas"), [(cpu_steps.adagrad, {"eps": 0}), (cpu_steps.lion, BETAS)])
def test_other_optimizers_name_wrong_option(kernel, betas):
    with pytest.raises(InvalidOpArgument, match="lr=None"):
        kernel(*([torch.ones(3)] for _ in range(3)), lr=None, **betas)


@pytest.mark.parametrize("beta1", [0.0, 0.9])
def test_a_step_that_cannot_be_undone_is_not_rolled_back(beta1):
    beta2 = 0.99 if beta1 == 0 else 0.0
    with pytest.raises(ValueError, match="cannot be undone"):
        cpu_steps.adam(*four(), **{**ADAM, "beta1": beta1, "beta2": beta2}, rollback=True)


_FORKED = """
import os, sys
import torch
from accel_ops.optimizers import cpu_steps
torch.set_num_threads(2)
rows = [[[torch.ones(200_000)] for _ in range(4)] for _ in range(2)]
def step(row):
    cpu_steps.adam(*row, step=1, lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8)
    return float(row[0][0][-1])
here = step(rows[0])
# torch's own operators would wait for threads that do not exist; only our kernel runs in the child.
child = os.fork()
if child == 0:
    os._exit(0 if step(rows[1]) == here else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_forked_after_threads_ran_can_step_too():
    assert run(sys.executable, "-c", _FORKED, timeout=120).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["direct", "through buffers"])
def test_more_than_two_to_the_31_elements(dtype):
    """Indices are 64 bits wide: the last elements are stepped on, and only once."""
    count = 2**31 + 5
    needed, free = 3 * count * dtype.itemsize, psutil.virtual_memory().available
    if free < needed + 2**30:
        pytest.skip(f"not run: {free >> 20} MiB are free, {needed >> 20} MiB and one GiB are needed")
    params, grads, momenta = (torch.zeros(count, dtype=dtype) for _ in range(3))
    grads[-3:] = 1
    cpu_steps.lion([params], [grads], [momenta], lr=1.0, beta1=0.0, beta2=0.0)
    assert params[-3:].tolist() == [-1.0] * 3
    assert params[-4] == 0
    assert cpu_steps.sum_of_squares([grads]) == 3.0


# --- memory that a step would read after it has written it is refused, and nothing is written then


def refused(*lists: list[torch.Tensor], message: str = "shares memory") -> None:
    """The step is refused and all tensors are as before."""
    before = [tensor.clone() for tensors in lists for tensor in tensors]
    with pytest.raises(InvalidOpArgument, match=message):
        cpu_steps.adam(*lists, **ADAM)
    assert all(map(torch.equal, before, [tensor for tensors in lists for tensor in tensors]))


SHARING: dict[str, Callable[[torch.Tensor], dict[str, torch.Tensor]]] = {
    "two written ones": lambda x: {"params": x[:6], "exp_avgs": x[:6]},
    "two that overlap": lambda x: {"params": x[:6], "exp_avgs": x[5:11]},
    "gradient and parameter": lambda x: {"params": x[:6], "grads": x[:6]},
    "gradient before parameter": lambda x: {"params": x[1:7], "grads": x[:6]},
    "gradient and state": lambda x: {"exp_avg_sqs": x[1:7], "grads": x[:6]},
    "with gaps, the same": lambda x: {"params": x[::2], "exp_avgs": x[::2]},
    "with gaps and without": lambda x: {"params": x[::2], "exp_avg_sqs": x[:6]},
    "gradient in the gaps": lambda x: {"params": x[::2], "grads": x[:6]},
    "expanded": lambda x: {"params": x[:1].expand(6)},
    "folded": lambda x: {"exp_avgs": torch.as_strided(x, (3, 2), (1, 1))},
}


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("how", SHARING)
def test_a_written_tensor_that_shares_memory_is_refused(how):
    refused(*four(**SHARING[how](torch.ones(12))))


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize(
    ("grad", "shared", "message"),
    [(3, True, "shares memory"), (2, False, "2 elements for a parameter of 3")],
    ids=["sharing", "a size"],
)
def test_what_a_later_tensor_of_another_type_lacks_is_seen_before_anything_is_written(grad, shared, message):
    first = [torch.ones(6) for _ in range(4)]
    bf16 = first[0][:3].view(torch.bfloat16)[:3] if shared else torch.ones(3, dtype=torch.bfloat16)
    second = [bf16, torch.ones(grad, dtype=torch.bfloat16), torch.ones(3), torch.ones(3)]
    refused(*(list(pair) for pair in zip(first, second, strict=True)), message=message)


@pytest.mark.usefixtures("with_and_without_library")
def test_gradients_may_share_memory_with_each_other():
    grad = torch.ones(12)
    params = [torch.ones(6), torch.ones(6), torch.ones(6)]
    states = [[torch.ones(6) for _ in range(3)] for _ in range(2)]
    cpu_steps.adam(params, [grad[:6], grad[3:9], grad[:1].expand(6)], *states, **ADAM)
    assert torch.equal(params[0], params[1])
    assert torch.equal(params[0], params[2])


@pytest.mark.usefixtures("with_and_without_library")
def test_tensors_side_by_side_in_one_buffer_are_taken():
    row = torch.ones(24)
    alone = four()
    cpu_steps.adam(*([row[start : start + 6]] for start in (0, 6, 12, 18)), **ADAM)
    cpu_steps.adam(*alone, **ADAM)
    assert torch.equal(row[:6], alone[0][0])
    assert torch.equal(row[12:18], alone[2][0])
