# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Operators of torch on which other checks, ops and the engine stand: the host's results, on every device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.needs import two_devices
from accel_testkit.suite.ops.spec import Numbers, error

pytestmark = pytest.mark.tier("device")

Tensor = torch.Tensor


def _resized(x: Tensor) -> Tensor:
    grown = x.flatten()[:2].clone().resize_(x.numel())
    return grown.copy_(x.flatten()).abs()


def _attended(x: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(x, x, x)


#: Name -> results of numbers of shape (4, 6), which may be of another type.
OPERATORS: dict[str, Callable[[Tensor], Tensor | tuple[Tensor, ...]]] = {
    "abs": torch.abs,
    "isinf and isnan": lambda x: (torch.isinf(x / 0), torch.isnan(x * torch.nan)),
    "norm": lambda x: (torch.linalg.vector_norm(x), x.norm(2), torch.linalg.vector_norm(x, torch.inf)),
    "sum, mean and cumsum": lambda x: (x.sum(), x.mean(0), x.cumsum(1)),
    "matmul": lambda x: x @ x.mT,
    "softmax": lambda x: x.softmax(-1),
    "scaled_dot_product_attention": lambda x: _attended(x.view(1, 2, 4, 3)),
    "layer_norm": lambda x: (functional.layer_norm(x, (6,)), functional.layer_norm(torch.full_like(x, -6e4), (6,))),
    "masked_fill and where": lambda x: (x.masked_fill(x > 0, 3.0), torch.where(x > 0, x, -x)),
    "sort and topk": lambda x: (x.sort(-1).values, x.topk(2).values),
    "gather and scatter": lambda x: (
        x.gather(1, x.argsort(1)), x.scatter(1, x.argsort(1), torch.zeros_like(x)), x[x.argsort(0)[:, 0]]
    ),
    "cat and stack": lambda x: (torch.cat([x, x]), torch.stack([x, x])),
    "clamp and round": lambda x: (x.clamp(-0.5, 0.5), (8 * x).round()),
    "view as another type": lambda x: x.view(torch.uint8),
    "resize_": _resized,
    "foreach": lambda x: (*torch._foreach_mul([x, x], 2.0), *torch._foreach_norm([x, x])),
    "strides": lambda x: x.t().contiguous() + x.t(),
}  # fmt: skip


def _expect_of_host(accelerator: DeepSpeedAccelerator, name: str, place: torch.device, holds: Holds) -> None:
    for dtype in accelerator.supported_dtypes():
        x = Numbers(torch.bfloat16)(4, 6).to(dtype)
        results = [OPERATORS[name](each) for each in (x.to(place), x)]
        found, wanted = ([one] if isinstance(one, Tensor) else [*one] for one in results)
        for ours, theirs in zip(found, wanted, strict=True):
            holds.equal(f"type and place in {dtype}", (ours.dtype, ours.device), (theirs.dtype, place))
            times = error(ours, theirs, 8 * torch.finfo(dtype).eps * (1 + theirs.double().abs().nan_to_num()))
            holds[f"results in {dtype}, {times:.3g} times as far off as allowed"] = times <= 1


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_is_the_hosts(accelerator: DeepSpeedAccelerator, device: torch.device, name: str) -> None:
    """An operator gives on the device what it gives on the host, in each type of `supported_dtypes()`."""
    holds = Holds()
    _expect_of_host(accelerator, name, torch.empty(0, device=device).device, holds)
    holds.expect(name, "correct the operator of the runtime: ops, other checks and DeepSpeed call it")


@two_devices
@pytest.mark.parametrize("name", OPERATORS)
def test_operator_works_where_its_tensors_are(
    accelerator: DeepSpeedAccelerator, second: int, name: str
) -> None:
    """An operator on tensors of a device that is not the current one computes there."""
    holds = Holds()
    for current, index in ((0, second), (second, 0)):
        accelerator.set_device(current)
        _expect_of_host(accelerator, name, torch.empty(0, device=accelerator.device(index)).device, holds)
    holds.expect(name, "choose the device of the tensors in the operator, with a device guard")
