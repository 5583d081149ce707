# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op precision: optimizer steps on half-precision numbers of very different size, and on leaf parameters."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.nn import functional

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite import op_steps
from accel_testkit.suite.expect import expect, largest
from accel_testkit.suite.op_steps import STEPS, StepOp, Tensors, Values

pytestmark = pytest.mark.tier("device")

_SIZE = 4099
#: Powers of two that numbers below 1 are multiplied by, one for each element: what the type and its squares hold.
_SPREAD = {torch.bfloat16: (-18, 19), torch.float16: (-3, 4)}
#: Roundings of the type that a result may be apart, in units in the last place: one at the end, and float32's.
_ROUNDINGS = 1.02
#: Lamb multiplies by a ratio of norms; Lion's update is a sign, which rounding decides where the sum is nearly zero.
_ELEMENTWISE = ("FusedAdamBuilder", "CPUAdamBuilder", "CPUAdagradBuilder")
#: deepspeed.inference.v2.inference_utils.ActivationType.GATED_GELU.
_GATED_GELU, _GATED_SILU = 3, 5
_HALF = [
    pytest.param(name, dtype, marks=pytest.mark.needs(name), id=f"{name}-{short}")
    for name in _ELEMENTWISE
    for dtype, short in ((torch.bfloat16, "bf16"), (torch.float16, "fp16"))
]
_BUILDERS = [pytest.param(name, marks=pytest.mark.needs(name)) for name in STEPS]


def _place(accelerator: DeepSpeedAccelerator, step: StepOp) -> torch.device:
    return torch.device(accelerator.device() if step.on_device else "cpu")


def _spread(step: StepOp, dtype: torch.dtype) -> list[Tensors]:
    """Gradient, parameter and states on the host, in the type, each with numbers of very different size."""
    generator = torch.Generator().manual_seed(41)
    low, high = _SPREAD[dtype]
    lists = []
    for _ in range(2 + step.states):
        powers = torch.randint(low, high, (_SIZE,), generator=generator, dtype=torch.float64)
        numbers = torch.rand(_SIZE, generator=generator, dtype=torch.float64) - 0.5
        lists.append([(numbers * powers.exp2()).to(dtype)])
    lists[-1] = [lists[-1][0].abs()]  # a mean or sum of squares
    return lists


@pytest.mark.parametrize(("name", "dtype"), _HALF)
def test_steps_round_once(
    accelerator: DeepSpeedAccelerator, created: Any, name: str, dtype: torch.dtype
) -> None:
    """Half-precision numbers, tiny beside huge, are computed in float32 at least and rounded once, at the end."""
    step = STEPS[name]
    if step.on_device and dtype not in accelerator.supported_dtypes():
        return
    for settings in step.variants.values():
        _expect_one_rounding(accelerator, created, name, dtype, settings)


def _expect_one_rounding(
    accelerator: DeepSpeedAccelerator, created: Any, name: str, dtype: torch.dtype, settings: Values
) -> None:
    step, values = STEPS[name], STEPS[name].schedule()[0]
    before = _spread(step, dtype)
    tensors = [[tensor.to(_place(accelerator, step), copy=True) for tensor in group] for group in before]
    step.call(
        created(name, op_steps.FIRST_ID, settings), tensors, {**values, **settings, "id": op_steps.FIRST_ID}
    )
    accelerator.synchronize()
    wanted = step.wanted(*(group[0].double() for group in before), **values, **settings)
    resolution = torch.finfo(dtype)
    # What cancels leaves float32's rounding of the larger number behind.
    cancelled = 4e-7 * sum(group[0].double().abs() for group in before)
    ratios = [
        (found[0].cpu().double() - exact).abs()
        / (exact.abs() * resolution.eps / 2 + cancelled + resolution.tiny)
        for found, exact in zip(tensors[1:], wanted, strict=False)
    ]
    error = largest(float(ratio.max()) for ratio in ratios)
    expect(
        error <= _ROUNDINGS,
        f"{step.function} of {name} loses precision in {dtype}",
        found=f"a result {error:.3g} times as far from float64 as one rounding",
        expected=f"at most {_ROUNDINGS}",
        do="convert half-precision tensors to float32, compute, and round at the end",
    )


@pytest.mark.parametrize("name", _BUILDERS)
def test_parameters_may_require_gradients(accelerator: DeepSpeedAccelerator, created: Any, name: str) -> None:
    """A step on leaf parameters outside of `torch.no_grad()` works, and autograd records nothing."""
    step, problems = STEPS[name], []
    dtypes = [torch.float32, torch.bfloat16, torch.float16]
    for dtype in (found for found in dtypes if not step.on_device or found in accelerator.supported_dtypes()):
        try:
            problem = _problem_with_leaves(
                step, created(name, op_steps.FIRST_ID, _first(step)), _place(accelerator, step), dtype
            )
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        problems += [f"{dtype}: {problem}"] if problem else []
    expect(
        not problems,
        f"{step.function} of {name} does not step leaf parameters",
        found="; ".join(problems),
        expected="the step, without autograd",
        do="detach the tensors in the op",
    )


def _first(step: StepOp) -> Values:
    return next(iter(step.variants.values()))


def _problem_with_leaves(step: StepOp, op: Any, place: torch.device, dtype: torch.dtype) -> str:
    values = {**step.schedule()[0], **_first(step)}
    tensors = [[torch.full((65,), 0.25 + n, device=place, dtype=dtype)] for n in range(2 + step.states)]
    tensors[1] = [torch.nn.Parameter(tensors[1][0])]
    before = [group[0].detach().cpu().double() for group in tensors]
    with torch.enable_grad():
        step.call(op, tensors, {**values, "id": op_steps.FIRST_ID})
    if any(group[0].grad_fn is not None for group in tensors):
        return "autograd has recorded the step"
    error = (tensors[1][0].detach().cpu().double() - step.wanted(*before, **values)[0]).abs().max()
    return "" if error < 2 * torch.finfo(dtype).eps + 1e-5 else f"an error of {error:g}"


@pytest.mark.needs("FusedLambBuilder")
def test_lamb_of_zeros_has_ratio_one(accelerator: DeepSpeedAccelerator) -> None:
    """A parameter of zeros, or an update of zeros, is stepped with the trust ratio 1; one of norm 1 with its own."""
    step, place = STEPS["FusedLambBuilder"], torch.device(accelerator.device())
    values = {**step.schedule()[0], **_first(step), "decay": 0.0}
    op = accelerator.create_op_builder("FusedLambBuilder").load()
    for param, grad in ((0.0, 0.5), (0.25, 0.0), (0.25, 0.5), (0.0, 0.0)):
        numbers = [torch.full((16,), number, dtype=torch.float64) for number in (grad, param, 0.0, 0.0)]
        tensors = [number.to(place, torch.float32) for number in numbers]
        op_steps.lamb(op, tensors, tensors[1].new_empty(0), values)
        wanted = step.wanted(*numbers, **values)
        error = float((tensors[1].cpu().double() - wanted[0]).abs().max())
        expect(
            error < 1e-5,
            f"lamb of parameters {param} and gradients {grad} computes wrongly",
            found=f"an error of {error:g}",
            expected=f"a step with the trust ratio {float(wanted[3]):g}",
            do="use the ratio 1 where either norm is 0, and nowhere else",
        )


@pytest.mark.needs("InferenceCoreBuilder")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_activations_round_once(accelerator: DeepSpeedAccelerator, dtype: torch.dtype) -> None:
    """A gate times a value of half precision is computed in float32 at least, with a bias and without."""
    if dtype not in accelerator.supported_dtypes():
        return
    op, device = accelerator.create_op_builder("InferenceCoreBuilder").load(), accelerator.device()
    generator = torch.Generator().manual_seed(43)
    x, bias = ((torch.rand(shape, generator=generator) * 4 - 2).to(dtype) for shape in ((64, 48), (48,)))
    for kind, given in itertools.product((_GATED_GELU, _GATED_SILU), (bias, None)):
        out = torch.full((64, 24), torch.nan, dtype=dtype, device=device)
        op.gated_activation(out, x.to(device), None if given is None else given.to(device), kind)
        wide = x.double() if given is None else x.double() + given.double()
        gate = wide[:, 0::2]
        gated = functional.silu(gate) if kind == _GATED_SILU else functional.gelu(gate, approximate="tanh")
        exact = gated * wide[:, 1::2]
        rounding = exact.abs() * torch.finfo(dtype).eps / 2 + 4e-7 * (1 + exact.abs())
        error = float(((out.cpu().double() - exact).abs() / rounding).max())
        expect(
            error <= _ROUNDINGS,
            f"gated_activation loses precision in {dtype}",
            found=f"a result {error:.3g} times as far from float64 as one rounding",
            expected=f"at most {_ROUNDINGS}",
            do="convert half-precision tensors to float32, compute, and round at the end",
        )
