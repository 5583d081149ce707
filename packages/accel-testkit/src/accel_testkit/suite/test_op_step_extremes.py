# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op step extremes: long lists, large tensors, tiny, huge and infinite gradients, orders in memory, overflow flags."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite import op_steps
from accel_testkit.suite.expect import expect, largest
from accel_testkit.suite.op_steps import STEPS, StepOp, Tensors, Values

pytestmark = pytest.mark.tier("device")

#: Beyond the elements of one launch and the tensors of one launch, as far as is known.
_LARGE, _LONG, _MORE = (1 << 20) + 3, 131, 1000
#: Largest error of numbers below 1; Lamb multiplies its update by a ratio of up to 10.
_TOLERANCE = {"FusedLambBuilder": 3e-5}
_OTHERS = 3e-6
_BUILDERS = [pytest.param(name, marks=pytest.mark.needs(name)) for name in STEPS]
_LISTS = [pytest.param(name, marks=pytest.mark.needs(name)) for name, step in STEPS.items() if step.many]


def _values(step: StepOp) -> Values:
    """Hyperparameters of a late step, whose second moment is still far from its mean."""
    first = {**step.schedule()[0], **next(iter(step.variants.values())), "id": op_steps.FIRST_ID}
    late = {"step": 2000, "betas": (0.9, 0.9999), "scale": 65536.0}
    return {**first, **{key: value for key, value in late.items() if key in first}}


def _lists(step: StepOp, sizes: list[int], scale: float) -> list[Tensors]:
    """Gradients, parameters and states on the host; some gradients are 0, alone or in the whole tensor."""
    generator = torch.Generator().manual_seed(29)
    lists = [[torch.rand(size, generator=generator) - 0.5 for size in sizes] for _ in range(2 + step.states)]
    if step.states == 2 or step.function == "adagrad_update":  # a mean or sum of squares
        lists[-1] = [tensor.abs() for tensor in lists[-1]]
    for tensor in lists[0]:
        tensor[::3] = 0.0
        tensor *= scale
    lists[0][-1].zero_()
    return lists


def _stepped(
    accelerator: DeepSpeedAccelerator,
    created: Any,
    name: str,
    lists: list[Tensors],
    values: Values | None = None,
) -> list[Tensors]:
    """Return what the step writes, on the host."""
    step, values = STEPS[name], values or _values(STEPS[name])
    place = torch.device(accelerator.device() if step.on_device else "cpu")
    op = created(name, op_steps.FIRST_ID, next(iter(step.variants.values())))
    tensors = [[tensor.to(place, copy=True) for tensor in group] for group in lists]
    for one in [tensors] if step.many else [[[t] for t in single] for single in zip(*tensors, strict=True)]:
        step.call(op, one, values)
    accelerator.synchronize()
    return [[tensor.cpu() for tensor in group] for group in tensors[1:]]


def _error(
    step: StepOp,
    before: Tensors,
    after: Tensors,
    values: Values | None = None,
    units: Sequence[float] = (1.0, 1.0, 1.0),
) -> float:
    """The largest error of one tensor's step, in units of parameter and states."""
    values = {key: value for key, value in (values or _values(step)).items() if key != "id"}
    start = [tensor.double() for tensor in before]
    found = [tensor.double() for tensor in after]
    wanted = step.wanted(*start, **values)
    if step.undecided is not None:
        found[0] = torch.where(step.undecided(start, values), wanted[0], found[0])
    triples = zip(found, wanted, units, strict=False)
    return largest(float((a - b).abs().max()) / unit for a, b, unit in triples)


@pytest.mark.parametrize("name", _BUILDERS)
def test_large_tensors_and_long_lists_are_stepped(
    accelerator: DeepSpeedAccelerator, created: Any, name: str
) -> None:
    """Every tensor of a long list, and every element of a large tensor, is stepped, also where gradients are 0."""
    step, tolerance = STEPS[name], _TOLERANCE.get(name, _OTHERS)
    sizes = [_LARGE, *range(1, _LONG), *[1] * _MORE] if step.many else [_LARGE, 1, 2, 3]
    before = _lists(step, sizes, _values(step).get("scale", 1.0))
    after = _stepped(accelerator, created, name, before)
    wrong = {
        f"tensor {number} of {size} elements": error
        for number, size in enumerate(sizes)
        if not (error := _error(step, [g[number] for g in before], [g[number] for g in after])) <= tolerance
    }
    expect(
        not wrong,
        f"{step.function} of {name} does not step every element",
        found=", ".join(f"{place}: an error of {error:g}" for place, error in list(wrong.items())[:3]),
        expected=f"at most {tolerance:g} beside float64 in each of {len(sizes)} tensors",
        do="look at the ends of launches and loops, and step where the gradient is 0: moments and weights decay",
    )


@pytest.mark.parametrize("name", _BUILDERS)
def test_gradient_that_is_not_finite_is_seen(
    accelerator: DeepSpeedAccelerator, created: Any, name: str
) -> None:
    """NaN in a gradient is NaN in the moments that take it in, infinity is not finite; others step as without."""
    step = STEPS[name]
    before = _lists(step, [67, 5], _values(step).get("scale", 1.0))
    before[0][0][[3, 50]] = torch.tensor([torch.nan, torch.inf])
    after = _stepped(accelerator, created, name, before)
    moments = [float(after[1][0][place]) for place in (3, 50)]
    # Where only a sign counts, infinity has one.
    steps = [] if step.undecided else [float(after[0][0][place]) for place in (3, 50)]
    kept = [0, 2, 4, 49, 51, 66]
    # Lamb's ratio is of the whole tensor.
    rest = (
        [0.0]
        if name == "FusedLambBuilder"
        else [_error(step, [g[0][kept] for g in before], [g[0][kept] for g in after])]
    )
    error = largest([*rest, _error(step, [g[1] for g in before], [g[1] for g in after])])
    expect(
        not any(map(math.isfinite, [*moments, *steps])) and error <= _TOLERANCE.get(name, _OTHERS),
        f"{step.function} of {name} hides a gradient that is not finite, or spreads it",
        found=f"after NaN and infinity moments are {moments}, parameters {steps}; elsewhere an error of {error:g}",
        expected="neither finite, and all other elements stepped: DeepSpeed and users look for NaN in what was trained",
        do="compute with the gradient as it is",
    )


@pytest.mark.parametrize("name", _BUILDERS)
@pytest.mark.parametrize("size", [1e-7, 1e4], ids=["tiny", "huge"])
def test_gradients_of_any_size_are_stepped(
    accelerator: DeepSpeedAccelerator, created: Any, name: str, size: float
) -> None:
    """With tiny and huge gradients the states are right beside their own size, and parameters move as they should."""
    step = STEPS[name]
    values = {**_values(step), "decay": 0.0}
    squared = step.states == 2 or step.function == "adagrad_update"
    units = [1.0, *[size] * (step.states - squared), *[size**2] * squared]
    before = _lists(step, [67, 5], values.get("scale", 1.0))
    for group, unit in zip(before, [size, *units], strict=True):
        for tensor in group:
            tensor *= unit
    after = _stepped(accelerator, created, name, before, values)
    errors = [
        _error(step, [g[number] for g in before], [g[number] for g in after], values, units)
        for number in range(2)
    ]
    expect(
        largest(errors) <= _TOLERANCE.get(name, _OTHERS),
        f"{step.function} of {name} is wrong for gradients of {size:g}",
        found=f"errors of {errors[0]:g} and {errors[1]:g}, beside a parameter, moment or mean square",
        expected=f"at most {_TOLERANCE.get(name, _OTHERS):g} of it: gradients of late layers and steps are small",
        do="keep moments as they are: no smallest number but epsilon, and no intermediate of a half type",
    )


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers without gaps, in another order in memory."""
    return tensor.to(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor.t().contiguous().t()


@pytest.mark.parametrize("name", _BUILDERS)
@pytest.mark.parametrize("shape", [(6, 5), (2, 3, 4, 5)], ids=["transposed", "channels last"])
def test_elements_meet_in_any_order_of_memory(
    accelerator: DeepSpeedAccelerator, created: Any, name: str, shape: tuple[int, ...]
) -> None:
    """Where gradient, parameter and states lie in different orders, each element meets its own; or all is refused."""
    step, errors = STEPS[name], {}
    numbers = _lists(step, [math.prod(shape)], _values(step).get("scale", 1.0))
    numbers[0][0] = numbers[1][0].flip(0) * _values(step).get("scale", 1.0)  # not zero
    before = [[tensor.view(shape) for tensor in group] for group in numbers]
    after = _stepped(accelerator, created, name, before)
    plain = _error(step, [g[0] for g in before], [g[0] for g in after])
    expect(
        plain <= _TOLERANCE.get(name, _OTHERS),
        f"{step.function} of {name} is wrong, in whatever order of memory",
        found=f"an error of {plain:g} for tensors in one order",
        expected="the step of the float64 reference",
        do="mend op_steps.every_step_is_right first: its message names the arguments",
    )
    for position in range(len(before)):
        mixed = [[_turned(group[0])] if at == position else group for at, group in enumerate(before)]
        try:
            after = _stepped(accelerator, created, name, mixed)
        except Exception:  # refused
            continue
        errors[position] = _error(step, [g[0] for g in before], [g[0] for g in after])
    expect(
        largest([0.0, *errors.values()]) <= _TOLERANCE.get(name, _OTHERS),
        f"{step.function} of {name} takes elements in the order of memory",
        found=f"errors {errors}, by which of gradient, parameter and states is in another order",
        expected="the step of tensors in one order, or an error: models with channels last have such gradients",
        do="compare strides, not is_non_overlapping_and_dense(); copy what differs, and copy it back",
    )


@pytest.mark.parametrize("name", _LISTS)
def test_flag_of_overflows_is_left_alone(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """The step is taken whatever the flag says, which the op does not write: not even if a gradient is infinite."""
    step, values = STEPS[name], _values(STEPS[name])
    place = accelerator.device()
    op = accelerator.create_op_builder(name).load()
    problems = []
    for flag_value, number in ((1, 0.25), (0, torch.inf)):
        tensors = [[torch.full((9,), 0.5, device=place)] for _ in range(2 + step.states)]
        tensors[0][0].fill_(number)
        flag = torch.full((1,), flag_value, dtype=torch.int32, device=place)
        step.call(op, tensors, values, flag)
        same = bool((tensors[1][0] == 0.5).all())
        problems += [f"no step with flag {flag_value}"] if same else []
        problems += (
            [f"flag {flag_value} is {int(flag)} after a gradient of {number}"]
            if int(flag) != flag_value
            else []
        )
    expect(
        not problems,
        f"{step.function} of {name} uses the flag of overflows",
        found="; ".join(problems),
        expected="a step, and the flag as it was: DeepSpeed looks for overflows itself, and never resets the flag",
        do="neither read nor write the second argument",
    )


@pytest.mark.parametrize("name", _BUILDERS)
@pytest.mark.parametrize("key", ["lr", "betas", "decay"])
def test_hyperparameters_may_be_zero(
    accelerator: DeepSpeedAccelerator, created: Any, name: str, key: str
) -> None:
    """Zero is a number like others: the first rate of a warm-up, betas of an optimizer without memory, no decay."""
    step = STEPS[name]
    if key not in step.keys:
        return
    values = {**_values(step), key: (0.0, 0.0) if key == "betas" else 0.0}
    before = _lists(step, [67, 5], values.get("scale", 1.0))
    after = _stepped(accelerator, created, name, before, values)
    error = largest(_error(step, [g[n] for g in before], [g[n] for g in after], values) for n in range(2))
    expect(
        error <= _TOLERANCE.get(name, _OTHERS),
        f"{step.function} of {name} is wrong where {key} is 0",
        found=f"an error of {error:g}",
        expected=f"at most {_TOLERANCE.get(name, _OTHERS):g} beside float64",
        do="take every hyperparameter as it is given; 0 does not mean a default",
    )


@pytest.mark.parametrize("name", _BUILDERS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"]
)
def test_nothing_comes_of_nothing(
    accelerator: DeepSpeedAccelerator, created: Any, name: str, dtype: torch.dtype
) -> None:
    """Without gradient, states and decay a step changes nothing but Lion's parameter, which grows; nothing is NaN.

    It grows by the learning rate on all devices, as by DeepSpeed's kernel for CUDA. On the host it may do anything.
    """
    step = STEPS[name]
    if dtype not in accelerator.supported_dtypes():
        return
    values = {**_values(step), "decay": 0.0, **({"eps": 1e-8} if "eps" in step.keys else {})}
    before = [[torch.zeros(67, dtype=dtype)] for _ in range(2 + step.states)]
    before[1][0].fill_(0.5)
    found = [group[0].double() for group in _stepped(accelerator, created, name, before, values)]
    wanted = 0.5 + (values["lr"] if name == "FusedLionBuilder" else 0.0)
    kept = name == "CPULionBuilder" or bool((found[0] - wanted).abs().max() <= torch.finfo(dtype).eps)
    expect(
        kept and not any(state.any() or state.isnan().any() for state in found[1:]),
        f"{step.function} of {name} makes something of nothing",
        found=f"a parameter of {found[0][0]:g} instead of {wanted:g}, "
        f"states of {[float(state[0]) for state in found[1:]]}",
        expected="what was there: frozen parts of a model have gradients of 0",
        do="compute in float32, in which epsilon is not 0, and put no other smallest number into states",
    )
