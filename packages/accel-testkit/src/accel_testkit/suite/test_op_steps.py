# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op steps: every step of every optimizer op, against a float64 step from the same numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite import op_steps
from accel_testkit.suite.expect import expect, largest
from accel_testkit.suite.op_steps import SIZES, STEPS, StepOp, Tensors, Values

pytestmark = pytest.mark.tier("device")

#: Largest error of a step on numbers below 1, by the type that holds them.
_TOLERANCE = {torch.float32: 3e-6, torch.float16: 4e-3, torch.bfloat16: 3.2e-2}
#: What lies around a tensor in its buffer, and has to stay.
_SENTINEL = 77.0
_BUILDERS = [pytest.param(name, marks=pytest.mark.needs(name)) for name in STEPS]
_VARIANTS = [
    pytest.param(name, variant, marks=pytest.mark.needs(name))
    for name, step in STEPS.items()
    for variant in step.variants
]
#: DeepSpeed's fused optimizers have states of their parameters' type; those on the host may have float32.
_HALF = [
    pytest.param(name, dtype, states, marks=pytest.mark.needs(name), id=f"{name}-{short}-{states}")
    for name, step in STEPS.items()
    for dtype, short in ((torch.bfloat16, "bf16"), (torch.float16, "fp16"))
    for states in (("same",) if step.on_device else ("same", "float32"))
]
_HOST = torch.device("cpu")


@pytest.fixture
def generator() -> torch.Generator:
    """The same numbers at each run."""
    return torch.Generator().manual_seed(13)


def _place(accelerator: DeepSpeedAccelerator, step: StepOp) -> torch.device:
    return torch.device(accelerator.device()) if step.on_device else _HOST


def _load(accelerator: DeepSpeedAccelerator, name: str) -> Any:
    return accelerator.create_op_builder(name).load()


def _lists(step: StepOp, sizes: Any, types: tuple[torch.dtype, torch.dtype], generator: Any) -> list[Tensors]:
    """Gradients, parameters and states on the host, in float64 with values that their types hold."""
    kinds = [types[0], types[0], *[types[1]] * step.states]
    lists = [
        [
            torch.rand(size, generator=generator, dtype=torch.float64).sub(0.5).to(kind).double()
            for size in sizes
        ]
        for kind in kinds
    ]
    if step.states == 2 or step.function == "adagrad_update":  # a mean or sum of squares
        lists[-1] = [tensor.abs() for tensor in lists[-1]]
    return lists


def _framed(tensor: torch.Tensor, dtype: torch.dtype, place: torch.device) -> torch.Tensor:
    """A copy that begins one element into its buffer, between sentinels."""
    buffer = torch.full((tensor.numel() + 2,), _SENTINEL, dtype=dtype, device=place)
    buffer[1 : 1 + tensor.numel()] = tensor.flatten().to(dtype)
    return buffer[1 : 1 + tensor.numel()].view(tensor.shape)


def _frame_is_whole(tensor: torch.Tensor) -> bool:
    size = tensor.numel() + 2
    buffer = torch.as_strided(tensor, (size,), (1,), tensor.storage_offset() - 1).cpu()
    return bool(buffer[0] == _SENTINEL and buffer[-1] == _SENTINEL)


def _stepped(step: StepOp, op: Any, lists: list[Tensors], values: Values) -> list[Any]:
    """Take the step on all tensors; return what each call returned."""
    if step.many:
        return [step.call(op, lists, values)]
    return [step.call(op, [[t] for t in one], values) for one in zip(*lists, strict=True)]


def _errors(step: StepOp, before: list[Tensors], after: list[Tensors], values: Values) -> list[float]:
    """The largest error of each tensor that a step writes, beside a float64 step from the same numbers."""
    values = {key: value for key, value in values.items() if key != "id"}
    errors = []
    for number in range(len(before[0])):
        start = [tensors[number].double() for tensors in before]
        wanted = step.wanted(*start, **values)
        found = [tensors[number].cpu().double() for tensors in after[1:]]
        if step.undecided is not None:
            found[0] = torch.where(step.undecided(start, values), wanted[0], found[0])
        pairs = [(a, b) for a, b in zip(found, wanted, strict=False) if a.numel()]
        errors += [float((a - b).abs().max()) for a, b in pairs]
    return errors


def _expect_close(errors: list[float], tolerance: float, what: str, name: str) -> None:
    error = largest(errors)
    expect(
        error <= tolerance,
        f"{what} computes wrongly",
        found=f"an error of {error:g} after one step, on numbers below 1",
        expected=f"at most {tolerance:g} beside float64",
        do=f"compare the op that {name} loads with the optimizer's paper; every argument counts at each call",
    )


@pytest.mark.parametrize(("name", "variant"), _VARIANTS)
def test_every_step_is_right(
    accelerator: DeepSpeedAccelerator, created: Any, generator: torch.Generator, name: str, variant: str
) -> None:
    """Steps with ever other rates, betas, epsilons, decays and numbers, on tensors of many sizes, are right."""
    step, settings = STEPS[name], STEPS[name].variants[variant]
    op = created(name, op_steps.FIRST_ID, settings)
    lists = _lists(step, step.sizes, (torch.float32, torch.float32), generator)
    place = _place(accelerator, step)
    for values in step.schedule():
        grads = _lists(step, step.sizes, (torch.float32, torch.float32), generator)[0]
        before = [grads, *lists[1:]]
        tensors = [[_framed(tensor, torch.float32, place) for tensor in group] for group in before]
        _stepped(step, op, tensors, {**values, **settings, "id": op_steps.FIRST_ID})
        accelerator.synchronize()
        _expect_close(
            _errors(step, before, tensors, {**values, **settings}),
            _TOLERANCE[torch.float32],
            f"{step.function} ({variant}) with {values}",
            name,
        )
        _expect_frames(step, tensors, grads, name)
        lists = [[tensor.cpu().double() for tensor in group] for group in tensors]


def _expect_frames(step: StepOp, tensors: list[Tensors], grads: Tensors, name: str) -> None:
    whole = all(_frame_is_whole(tensor) for group in tensors for tensor in group)
    kept = all(torch.equal(a.cpu().double(), b) for a, b in zip(tensors[0], grads, strict=True))
    expect(
        whole and kept,
        f"{step.function} writes where it should not",
        found=f"memory beside the tensors is {'as before' if whole else 'overwritten'}, "
        f"gradients are {'as before' if kept else 'changed'}",
        expected="parameters and states written, and nothing else",
        do=f"look at the bounds and outputs of the op that {name} loads",
    )


@pytest.mark.parametrize(("name", "dtype", "states"), _HALF)
def test_half_precision_steps_are_right(
    accelerator: DeepSpeedAccelerator,
    created: Any,
    generator: torch.Generator,
    name: str,
    dtype: torch.dtype,
    states: str,
) -> None:
    """Parameters in a half type, with states of that type or of float32, are right within that type's precision."""
    step = STEPS[name]
    if step.on_device and dtype not in accelerator.supported_dtypes():
        return
    settings = next(iter(step.variants.values()))
    op = created(name, op_steps.FIRST_ID, settings)
    types = (dtype, dtype if states == "same" else torch.float32)
    lists = _lists(step, SIZES[1:], types, generator)
    kinds = [types[0], types[0], *[types[1]] * step.states]
    place = _place(accelerator, step)
    for values in step.schedule()[:3]:
        tensors = [
            [tensor.to(place, kind) for tensor in group] for group, kind in zip(lists, kinds, strict=True)
        ]
        _stepped(step, op, tensors, {**values, **settings, "id": op_steps.FIRST_ID})
        errors = _errors(step, lists, tensors, {**values, **settings})
        what = f"{step.function} in {dtype} with states of {types[1]}"
        _expect_close(errors, _TOLERANCE[dtype], what, name)
        held = all(t.dtype == kind for group, kind in zip(tensors, kinds, strict=True) for t in group)
        expect(
            held,
            f"{what} changes types",
            found="other types",
            expected="the types given",
            do="write in place",
        )
        lists = [[tensor.cpu().double() for tensor in group] for group in tensors]


@pytest.mark.parametrize("name", _BUILDERS)
def test_strides_are_respected(
    accelerator: DeepSpeedAccelerator, created: Any, generator: torch.Generator, name: str
) -> None:
    """Tensors that are not contiguous are stepped like others, or refused; never as if they were contiguous."""
    step = STEPS[name]
    settings, values = next(iter(step.variants.values())), step.schedule()[0]
    op = created(name, op_steps.FIRST_ID, settings)
    before = _lists(step, [(6, 5)], (torch.float32, torch.float32), generator)
    place = _place(accelerator, step)
    for position in range(len(before)):  # one tensor at a time, so that the layouts differ
        tensors = [[group[0].float().to(place)] for group in before]
        spread = torch.full((12, 6), _SENTINEL, device=place)
        part = spread.t()[:, :10:2].copy_(tensors[position][0])
        tensors[position] = [part]
        try:
            _stepped(step, op, tensors, {**values, **settings, "id": op_steps.FIRST_ID})
        except Exception:  # refused
            continue
        errors = _errors(step, before, tensors, {**values, **settings})
        errors.append(float((spread.t()[:, 1::2] - _SENTINEL).abs().max()))
        _expect_close(errors, _TOLERANCE[torch.float32], f"{step.function} on a tensor with strides", name)


@pytest.mark.parametrize("name", _BUILDERS)
def test_optimizers_do_not_share_anything(
    accelerator: DeepSpeedAccelerator, created: Any, generator: torch.Generator, name: str
) -> None:
    """Steps of two optimizers with other settings, in turn, are each right; also once each of them was replaced."""
    step = STEPS[name]
    variants = list(step.variants.values())
    pair = {op_steps.FIRST_ID: variants[0], op_steps.SECOND_ID: variants[-1]}
    ops = {number: created(name, number, settings) for number, settings in pair.items()}
    place, schedule = _place(accelerator, step), step.schedule()
    for turn, number in enumerate([*pair, *pair, op_steps.SECOND_ID, op_steps.FIRST_ID]):
        if turn == 4:  # destroyed, and created again with the other's settings
            op_steps.destroy(ops[number], name, number)
            pair[number] = variants[0]
            op_steps.create(ops[number], name, number, variants[0])
        if turn == 5:  # created again as it is, with the other's settings
            pair[number] = variants[-1]
            op_steps.create(ops[number], name, number, variants[-1])
        before = _lists(step, (9, 300), (torch.float32, torch.float32), generator)
        tensors = [[tensor.to(place, torch.float32) for tensor in group] for group in before]
        values = {**schedule[turn % len(schedule)], **pair[number]}
        _stepped(step, ops[number], tensors, {**values, "id": number})
        errors = _errors(step, before, tensors, values)
        _expect_close(errors, _TOLERANCE[torch.float32], f"{step.function} of the second optimizer", name)


@pytest.mark.needs("FusedLambBuilder")
def test_lamb_returns_its_ratio_and_fills_its_copy(
    accelerator: DeepSpeedAccelerator, generator: torch.Generator
) -> None:
    """`lamb` returns the trust ratio, which DeepSpeed keeps, and writes the parameter into a copy of another type."""
    name = "FusedLambBuilder"
    step, op, place = STEPS[name], _load(accelerator, name), torch.device(accelerator.device())
    settings = step.variants["corrected"]
    for values in step.schedule():
        before = _lists(step, [(33, 5)], (torch.float32, torch.float32), generator)
        grad, param, first, second = (tensors[0].to(place, torch.float32) for tensors in before)
        # As DeepSpeed passes it: a parameter of the model.
        copy = torch.zeros_like(param, dtype=torch.float16, requires_grad=True)
        ratio = op_steps.lamb(op, [grad, param, first, second], copy, {**values, **settings})
        wanted = step.wanted(*(tensors[0] for tensors in before), **values, **settings)
        found = ratio.item() if isinstance(ratio, torch.Tensor) and ratio.numel() == 1 else repr(ratio)
        copied = float((copy.detach().double() - param.double()).abs().max())
        expect(
            isinstance(found, float)
            and abs(found - float(wanted[3])) < 1e-4 * float(wanted[3])
            and copied < 2e-3,
            "lamb returns another ratio than it uses, or does not fill the copy",
            found=f"{found!r}; the copy is {copied:g} apart from the parameter",
            expected=f"a tensor of one element, {float(wanted[3])!r}; a copy that is the parameter in float16",
            do="return the trust ratio after it was clamped, and write the new parameter into the second argument",
        )
