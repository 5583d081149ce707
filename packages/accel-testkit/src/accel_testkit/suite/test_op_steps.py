# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op steps: every optimizer op with numbers of every form, against a float64 step from the same numbers."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite import needs, op_steps
from accel_testkit.suite.expect import Holds, expect, largest
from accel_testkit.suite.op_steps import FIRST_ID, SECOND_ID, STEPS, StepOp, Tensor, Tensors, Values

pytestmark = pytest.mark.tier("device")

Lists = list[Tensors]
#: What lies around a tensor in its buffer, and has to stay.
_SENTINEL = 77.0
#: Around the vector widths of kernels and the chunks that they work in, and no element at all.
_SIZES = (0, 1, 7, 257, 1023, 1024, 1025, 4097)
_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: Largest error of a step on numbers below 1, by the type that holds them.
_ERRORS = {torch.float32: 3e-6, torch.float16: 4e-3, torch.bfloat16: 3.2e-2}
#: Powers of two that numbers below 1 are multiplied by: what the type and its squares hold.
_POWERS = {torch.bfloat16: (-18, 19), torch.float16: (-3, 4)}
_BUILDERS = needs.ops(STEPS)


# ------------------------------------------------------------------------------- numbers of a step


def _uniform(
    step: StepOp, sizes: Any, kind: torch.dtype = torch.float32, states: torch.dtype | None = None, seed: int = 13
) -> Lists:  # fmt: skip
    """Gradients, parameters and states on the host, below 0.5; squares are not negative."""
    generator = torch.Generator().manual_seed(seed)
    kinds = [kind, kind, *[states or kind] * step.states]
    lists = [[torch.rand(size, generator=generator).sub(0.5).to(each) for size in sizes] for each in kinds]
    return [*lists[:-1], [tensor.abs() for tensor in lists[-1]]] if step.squares else lists


def _scaled(step: StepOp, sizes: Any, size: float = 1.0) -> Lists:
    """Numbers with gradients times LAMB's scale and `size`; some are 0, alone or in the whole tensor."""
    lists = _uniform(step, sizes, seed=29)
    units = [size * 65536.0 ** ("scale" in step.keys), *_units(step, size)]
    for group, unit in zip(lists, units, strict=True):
        for tensor in group:
            tensor *= unit
    for tensor in lists[0]:
        tensor.view(-1)[::3] = 0.0
    lists[0][-1].zero_()
    return lists


def _units(step: StepOp, size: float) -> list[float]:
    """What parameter and states are measured in where gradients are of a size."""
    return [1.0, *[size] * (step.states - step.squares), *[size**2] * step.squares]


def _in_lists(step: StepOp) -> Lists:
    """Beyond the elements and the tensors of one launch, as far as is known."""
    large = (1 << 20) + 3
    return _scaled(step, [large, *range(1, 131), *[1] * 1000] if step.many else [large, 1, 2, 3])


def _shaped(*shape: int) -> Callable[[StepOp], Lists]:
    def numbers(step: StepOp) -> Lists:
        lists = _uniform(step, [shape], seed=29)
        lists[0] = [lists[1][0].flip(0) * 65536.0 ** ("scale" in step.keys)]  # not zero
        return lists

    return numbers


def _spread(kind: torch.dtype) -> Callable[[StepOp], Lists]:
    """Numbers of very different size in a half type."""

    def numbers(step: StepOp) -> Lists:
        generator = torch.Generator().manual_seed(41)
        lists = []
        for _ in range(2 + step.states):
            powers = torch.randint(*_POWERS[kind], (4099,), generator=generator, dtype=torch.float64)
            numbers = torch.rand(4099, generator=generator, dtype=torch.float64) - 0.5
            lists.append([(numbers * powers.exp2()).to(kind)])
        return [*lists[:-1], [lists[-1][0].abs()]]

    return numbers


def _beside_float32(kind: torch.dtype, states: torch.dtype | None) -> Callable[[StepOp], Lists]:
    """A tensor of a half type and one of float32; no sum of them is near zero."""

    def numbers(step: StepOp) -> Lists:
        generator = torch.Generator().manual_seed(59)
        kinds = (kind, torch.float32)
        return [
            [(torch.rand(65, generator=generator) / 2 + 0.25).to(states or each if at > 1 else each) for each in kinds]
            for at in range(2 + step.states)
        ]  # fmt: skip

    return numbers


def _constant(kind: torch.dtype, count: int, *numbers: float) -> Callable[[StepOp], Lists]:
    return lambda step: [[torch.full((count,), number, dtype=kind)] for number in numbers]


# ------------------------------------------------------------------------------- where they lie


def _placed(tensor: Tensor, layout: str, place: torch.device) -> tuple[Tensor, Tensor]:
    """Return a copy that lies in a buffer of sentinels, and the buffer."""
    count, shape = tensor.numel(), tensor.shape
    size = (12, 7) if layout == "gaps" else (count + 2,)
    buffer = torch.full(size, _SENTINEL, dtype=tensor.dtype, device=place)
    if layout == "gaps":
        view = buffer.t()[:6, :10:2]
    elif layout == "turned":
        middle, turned = buffer[1:-1], (*shape[:1], *shape[2:], shape[1])
        view = middle.view(turned).movedim(-1, 1) if len(shape) == 4 else middle.view(shape[::-1]).t()
    else:
        view = (buffer[1:-1] if layout == "framed" else buffer[:-2]).view(shape)
    view.copy_(tensor)
    return view, buffer


def _is_whole(view: Tensor, buffer: Tensor) -> bool:
    """Whether all that is around the tensor is as it was."""
    view.detach().fill_(_SENTINEL)
    return bool((buffer == _SENTINEL).all())


@dataclass(frozen=True)
class Trial:
    """Steps of one optimizer: the op, where its tensors are, and the hyperparameters."""

    step: StepOp
    op: Any
    place: torch.device
    values: Values

    def with_values(self, values: Values, settings: Values) -> Trial:
        """Return steps of the same op with other hyperparameters, those that the op takes."""
        known = {key: value for key, value in values.items() if key in self.step.keys}
        return replace(self, values={**known, **settings, "id": FIRST_ID})

    def take(self, before: Lists, layouts: Any = "", leaves: bool = False) -> Lists:
        """Take a step on copies; return them on the host, in one order of memory. Raise if it writes elsewhere."""
        layouts = [layouts] * len(before) if isinstance(layouts, str) else layouts
        placed = [
            [_placed(tensor, layout, self.place) for tensor in group]
            for group, layout in zip(before, layouts, strict=True)
        ]
        lists = [[view for view, _ in group] for group in placed]
        if leaves:
            lists[1] = [torch.nn.Parameter(param) for param in lists[1]]
        with torch.set_grad_enabled(leaves):
            alone = [[[tensor] for tensor in each] for each in zip(*lists, strict=True)]
            for one in [lists] if self.step.many else alone:
                self.step.call(self.op, one, self.values)
        if any(tensor.grad_fn is not None for group in lists for tensor in group):
            raise AssertionError("autograd has recorded the step")
        after = [[tensor.detach().cpu().clone().contiguous() for tensor in group] for group in lists]
        # Gradients that are not finite are compared as bytes are.
        pairs = zip(after[0], before[0], strict=True)
        kept = all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)
        if not kept or not all(_is_whole(*each) for group in placed for each in group):
            raise AssertionError("a gradient, or memory beside a tensor, is overwritten")
        return after

    def error(self, before: Lists, after: Lists, allowed: Callable[..., Any]) -> float:
        """Return how many times further than allowed a tensor is from the float64 step."""
        ratios = [0.0]
        for number in range(len(before[0])):
            start = [group[number].double() for group in before]
            wanted = self.step.wanted(self.values, *start)
            found = [group[number] for group in after[1:]]
            if any(one.dtype != group[number].dtype for one, group in zip(found, before[1:], strict=True)):
                return math.inf
            for at, (one, exact) in enumerate(zip(found, wanted, strict=False)):
                apart = (one.double() - exact).abs()
                # What is not finite in the tensor's type need not be so in the same way.
                infinite = ~exact.to(one.dtype).isfinite()
                apart = apart.masked_fill(infinite & ~one.isfinite(), 0.0)
                if at == 0 and self.step.undecided is not None:
                    apart = apart.masked_fill(self.step.undecided(self.values, *start), 0.0)
                if apart.numel():
                    ratios.append(float((apart / allowed(self.step, at, one, exact, start)).max()))
        return largest(ratios)


# ------------------------------------------------------------------------------- how far a step may be off


def _below_one(step: StepOp, at: int, found: Tensor, exact: Tensor, start: Tensors) -> float:
    """An error of numbers below 1, by the tensor's own type."""
    return _ERRORS[found.dtype]


def _of_parameters(step: StepOp, at: int, found: Tensor, exact: Tensor, start: Tensors) -> float:
    """LAMB multiplies its update by a ratio of up to 10."""
    return 3e-5 if step.function == "lamb" else 3e-6


def _of_size(size: float) -> Callable[..., float]:
    return lambda step, at, *rest: _of_parameters(step, at, *rest) * _units(step, size)[at]


def _one_rounding(step: StepOp, at: int, found: Tensor, exact: Tensor, start: Tensors) -> Tensor:
    """One rounding at the end; what cancels leaves float32's rounding of the larger number behind."""
    kind = torch.finfo(found.dtype)
    cancelled = 4e-7 * sum(each.abs() for each in start)
    return 1.02 * (exact.abs() * kind.eps / 2 + cancelled + kind.tiny)


def _four_roundings(step: StepOp, at: int, found: Tensor, exact: Tensor, start: Tensors) -> float:
    return 4 * max(torch.finfo(found.dtype).eps, 1e-6)


@dataclass(frozen=True)
class Form:
    """A kind of numbers that every step function is tried with.

    numbers: makes gradients, parameters and states on the host.  values: hyperparameters that differ from a step's.
    steps:   how many of the first steps' hyperparameters are tried, each from the same numbers.
    layout:  how the tensors lie, one at a time and then all of them.  leaves: parameters require gradients.
    allowed: the largest error.  refusable: the op may refuse it.  only: builders that have it.
    do:      what the author of an op that fails has to do.
    """

    numbers: Callable[[StepOp], Lists]
    allowed: Callable[..., Any] = _of_parameters
    values: Values = field(default_factory=dict)
    layout: str = ""
    leaves: bool = False
    refusable: bool = False
    only: tuple[str, ...] = tuple(STEPS)
    steps: int = 1
    do: str = "compare the op with the optimizer's paper"


#: A late step, whose second moment is still far from its mean.
_LATE = {"step": 2000, "betas": (0.9, 0.9999), "scale": 65536.0}
#: A rate and a decay that change a half-precision parameter by far more than its rounding.
_LARGE = {"lr": 0.25, "weight_decay": 0.5}
#: Lamb multiplies by a ratio of norms; Lion's update is a sign, which rounding decides where the sum is nearly zero.
_ELEMENTWISE = ("FusedAdamBuilder", "CPUAdamBuilder", "CPUAdagradBuilder")
_ADAMS = ("FusedAdamBuilder", "CPUAdamBuilder")
_LAMB = ("FusedLambBuilder",)
_HOST = tuple(name for name, step in STEPS.items() if not step.on_device)
_WIDE = "convert each tensor by its own type to float32, compute, and round once, at the end"
_ORDER = "compare strides, not is_non_overlapping_and_dense(); copy what differs, and copy it back"
_ENDS = "look at the ends of launches and loops, and step where the gradient is 0: moments and weights decay"
_TINY = "keep moments as they are: no smallest number but epsilon, and no intermediate of a half type"
_ZERO = "take every hyperparameter as it is given; 0 does not mean a default"
_TERMS = "leave a term out where its factor is 0: 0 times an infinite parameter is NaN"
_RATIO = "use the ratio 1 where either norm is 0, and nowhere else; sum squares in float32"


def _few(step: StepOp) -> Lists:
    return _scaled(step, [67, 5])


#: Numbers of gradients, parameters and states whose squares float32 holds; and such that are not finite.
_EXTREMES = (
    (0.0, -0.0, 1e-45, -3e-42, 1e-30, -1e-20, 1e-8, 1.0, -6e4, 1e8, -1e18, math.inf, -math.inf, math.nan),
    (0.0, 1e-40, -1e-10, 1.0, 3e4, 1e18, -math.inf, math.inf),
    (0.0, 1e-42, -1.0, 1e10),
    (0.0, 1e-44, 1e-16, 1.0, 1e20),
)  # fmt: skip


def _extremes(step: StepOp) -> Lists:
    """Each gradient with each parameter and each state, for an optimizer that treats elements alone."""
    taken = [*_EXTREMES[:2], *_EXTREMES[-1 if step.states == 1 else 2 :]]
    return [[column] for column in torch.tensor(list(itertools.product(*taken))).unbind(1)]


def _rounded(step: StepOp, at: int, found: Tensor, exact: Tensor, start: Tensors) -> Tensor:
    """Some roundings of the terms of a sum that is not one of squares, and an update of subnormal numbers."""
    grad, param, *states = start
    terms = [param] if at == 0 else [grad, param, states[0]] if at < step.states else []
    sizes = torch.stack([each.abs().nan_to_num(0.0, 0.0, 0.0) for each in (exact, *terms)])
    return 4e-6 * sizes.sum(0) + 1e-34


def _half(kind: torch.dtype, states: torch.dtype | None = None) -> Callable[[StepOp], Lists]:
    return lambda step: _uniform(step, _SIZES[1:], kind, states)


def _norms(*numbers: float, kind: torch.dtype = torch.float32, count: int = 16) -> Form:
    most = 1e4 if count > 16 else 10.0
    values = {"weight_decay": 0.0, "bounds": (0.01, most), "lr": 0.01 if count > 16 else 0.05}
    allowed: Callable[..., Any] = lambda *a: 0.25 if count > 16 else 1e-5  # noqa: E731
    return Form(_constant(kind, count, *numbers), allowed, values, only=_LAMB, do=_RATIO)


FORMS: dict[str, Form] = {
    "large tensors, long lists": Form(_in_lists, values=_LATE, do=_ENDS),
    "tiny": Form(
        lambda step: _scaled(step, [67, 5], 1e-7), _of_size(1e-7), {**_LATE, "weight_decay": 0.0}, do=_TINY
    ),
    "huge": Form(
        lambda step: _scaled(step, [67, 5], 1e4), _of_size(1e4), {**_LATE, "weight_decay": 0.0}, do=_TINY
    ),
    "no lr": Form(_few, values={**_LATE, "lr": 0.0}, do=_ZERO),
    "no betas": Form(_few, values={**_LATE, "betas": (0.0, 0.0)}, do=_ZERO),
    "no decay": Form(_few, values={**_LATE, "weight_decay": 0.0}, do=_ZERO),
    "gaps": Form(_shaped(6, 5), values=_LATE, layout="gaps", refusable=True, do=_ORDER),
    "transposed": Form(_shaped(6, 5), values=_LATE, layout="turned", refusable=True, do=_ORDER),
    "channels last": Form(_shaped(2, 3, 4, 5), values=_LATE, layout="turned", refusable=True, do=_ORDER),
    "norm of no parameter": _norms(0.5, 0.0, 0.0, 0.0),
    "norm of no update": _norms(0.0, 0.25, 0.0, 0.0),
    "norm of 1": _norms(0.5, 0.25, 0.0, 0.0),
    "norm of nothing": _norms(0.0, 0.0, 0.0, 0.0),
    "norm beyond fp16": _norms(0.5, 200.0, 0.25, 0.25, kind=torch.float16, count=4096),
    "extreme numbers": Form(
        _extremes, _rounded, {"step": 7, "betas": (0.9, 0.999)}, only=_ELEMENTWISE, do=_TERMS
    ),
    "leaves fp32": Form(_half(torch.float32), _below_one, leaves=True, do="detach the tensors in the op"),
}
for _short, _kind in list(_TYPES.items())[1:]:
    FORMS |= {
        _short: Form(_half(_kind), _below_one, steps=3, do=_WIDE),
        f"{_short}, float32 states": Form(
            _half(_kind, torch.float32), _below_one, only=_HOST, steps=3, do=_WIDE
        ),
        f"{_short} without gradients": Form(
            _constant(_kind, 16, 0.0, 0.5, 0.0, 0.0), _below_one, only=_ADAMS, do=_TINY
        ),
        f"leaves {_short}": Form(_half(_kind), _below_one, leaves=True, do="detach the tensors in the op"),
        f"{_short} of every size": Form(_spread(_kind), _one_rounding, only=_ELEMENTWISE, do=_WIDE),
        f"{_short} beside fp32": Form(_beside_float32(_kind, None), _four_roundings, _LARGE, refusable=True, do=_WIDE),
        f"{_short} beside fp32, float32 states": Form(
            _beside_float32(_kind, torch.float32), _four_roundings, _LARGE, refusable=True, do=_WIDE
        ),
    }  # fmt: skip


def _place(accelerator: DeepSpeedAccelerator, step: StepOp) -> torch.device:
    return torch.device(accelerator.device() if step.on_device else "cpu")


def _trial(
    accelerator: DeepSpeedAccelerator, created: Any, name: str, values: Values, settings: Values | None = None
) -> Trial:
    step = STEPS[name]
    settings = step.first if settings is None else settings
    trial = Trial(step, created(name, FIRST_ID, settings), _place(accelerator, step), {})
    return trial.with_values({**step.schedule()[0], **values}, settings)


def _problem(trial: Trial, form: Form) -> str:
    """What is wrong with steps of a form; empty if nothing is."""
    before = form.numbers(trial.step)
    count = len(before)
    layouts = [[""] * count]
    if form.layout:
        alone = [[form.layout * (at == place) for at in range(count)] for place in range(count)]
        layouts += [*alone, [form.layout] * count]
    for layout in layouts:
        try:
            error = trial.error(before, trial.take(before, layout, form.leaves), form.allowed)
            problem = "" if error <= 1 else f"a step {error:.3g} times as far from float64 as is allowed"
        except AssertionError as wrong:
            problem = str(wrong)
        except Exception as refused:
            may = form.refusable and (any(layout) or not form.layout)
            problem = "" if may else f"{type(refused).__name__}: {refused}"
        if problem:
            names = ("gradient", "parameter", "state", "state")
            where = [name for name, each in zip(names, layout, strict=False) if each]
            return f"{problem}, {f'of another layout: {where}' if where else 'in whatever order of memory'}"
    return ""


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        pytest.param(name, variant, marks=pytest.mark.needs(name))
        for name, step in STEPS.items()
        for variant in step.variants
    ],
)
def test_every_step_is_right(
    accelerator: DeepSpeedAccelerator, created: Any, name: str, variant: str
) -> None:
    """Steps whose rates, betas, epsilons, decays and numbers change are right, on tensors of many sizes."""
    step, holds = STEPS[name], Holds()
    # No tensor is empty where a function of the device takes one tensor.
    lists = _uniform(step, _SIZES if step.many or not step.on_device else _SIZES[1:])
    # One op for all steps: it may keep nothing of an earlier one.
    first = _trial(accelerator, created, name, {}, step.variants[variant])
    for number, values in enumerate(step.schedule()):
        trial = first.with_values(values, step.variants[variant])
        before = [_uniform(step, [t.shape for t in lists[0]], seed=number)[0], *lists[1:]]
        try:
            lists = trial.take(before, "framed")
            error = trial.error(before, lists, _below_one)
            what = f"at most 3e-06 beside float64 on numbers below 1: {3e-6 * error:g} with {values}"
            holds[what] = error <= 1
        except Exception as problem:
            holds[f"no {type(problem).__name__}: {problem}, with {values}"] = False
        do = f"compare the op that {name} loads with the optimizer's paper; each argument counts at each call"
        holds.expect(f"{step.function} ({variant})", do)


@pytest.mark.parametrize(
    ("form", "name"),
    [
        pytest.param(form, name, marks=pytest.mark.needs(name), id=f"{form}-{name}")
        for form in FORMS
        for name in FORMS[form].only
    ],
)
def test_every_form_is_stepped(accelerator: DeepSpeedAccelerator, created: Any, form: str, name: str) -> None:
    """Numbers of every size, type, count and order in memory are stepped as in float64, and nothing else is written."""
    step, tried, holds = STEPS[name], FORMS[form], Holds()
    kinds = {tensor.dtype for group in tried.numbers(step)[:2] for tensor in group[:2]}
    needs.types(accelerator, *(kinds if step.on_device else ()))
    for variant, settings in step.variants.items():
        for values in step.schedule()[: tried.steps]:
            trial = _trial(accelerator, created, name, {**values, **tried.values}, settings)
            problem = _problem(trial, tried)
            holds[f"{variant} with {values}: {problem}"] = not problem
    holds.expect(f"{step.function} of {name}, {form}, beside float64", tried.do)


@pytest.mark.parametrize("name", _BUILDERS)
def test_optimizers_do_not_share_anything(accelerator: DeepSpeedAccelerator, created: Any, name: str) -> None:
    """Steps of two optimizers with other settings, in turn, are each right; also once each of them was replaced."""
    step, holds = STEPS[name], Holds()
    variants = list(step.variants.values())
    pair = {FIRST_ID: variants[0], SECOND_ID: variants[-1]}
    ops = {number: created(name, number, settings) for number, settings in pair.items()}
    for turn, number in enumerate([*pair, *pair, SECOND_ID, FIRST_ID]):
        if turn == 4:  # destroyed, and created again with the other's settings
            op_steps.destroy(ops[number], name, number)
        if turn >= 4:  # the first is created again as it is
            pair[number] = variants[0 if turn == 4 else -1]
            op_steps.create(ops[number], name, number, pair[number])
        before = _uniform(step, (9, 300), seed=turn)
        values = {**step.schedule()[turn % 5], **pair[number], "id": number}
        trial = Trial(step, ops[number], _place(accelerator, step), values)
        error = trial.error(before, trial.take(before), _below_one)
        holds[f"turn {turn}: {error:.3g} times as far from float64 as is allowed"] = error <= 1
    do = "keep settings by the ID of the optimizer, and replace them when it is created again"
    holds.expect(f"{step.function} of two optimizers in turn", do)


@pytest.mark.needs("FusedLambBuilder")
def test_lamb_returns_its_ratio_and_fills_its_copy(accelerator: DeepSpeedAccelerator, created: Any) -> None:
    """`lamb` returns the trust ratio, which DeepSpeed keeps, and writes the parameter into a copy of another type."""
    step, holds = STEPS["FusedLambBuilder"], Holds()
    first = _trial(accelerator, created, "FusedLambBuilder", {})
    for values in step.schedule():
        trial = first.with_values(values, step.first)
        before = _uniform(step, [(33, 5)])
        lists = [[group[0].to(trial.place, copy=True)] for group in before]
        # As DeepSpeed passes it: a parameter of the model.
        copy = torch.zeros_like(lists[1][0], dtype=torch.float16, requires_grad=True)
        ratio = step.call(trial.op, lists, trial.values, copy)
        wanted = float(step.wanted(trial.values, *(group[0].double() for group in before))[3])
        found = ratio.item() if isinstance(ratio, torch.Tensor) and ratio.numel() == 1 else repr(ratio)
        near = isinstance(found, float) and abs(found - wanted) < 1e-4 * wanted
        holds[f"a tensor of one element, the ratio {wanted!r}: {found!r}"] = near
        holds.near("the copy, beside the parameter,", copy, lists[1][0], 2e-3)
    do = "return the trust ratio after it was clamped, and write the new parameter into the second argument"
    holds.expect("lamb", do)


@pytest.mark.parametrize("name", _BUILDERS)
def test_gradient_that_is_not_finite_is_seen(
    accelerator: DeepSpeedAccelerator, created: Any, name: str
) -> None:
    """NaN in a gradient is NaN in the moments that take it in, infinity is not finite; others step as without."""
    step, trial = STEPS[name], _trial(accelerator, created, name, _LATE)
    before = _few(step)
    before[0][0][[3, 50]] = torch.tensor([torch.nan, torch.inf])
    after = trial.take(before)
    moments = [float(after[2][0][place]) for place in (3, 50)]
    # Where only a sign counts, infinity has one.
    steps = [] if step.undecided else [float(after[1][0][place]) for place in (3, 50)]
    # Lamb's ratio is of the whole tensor.
    kept = torch.tensor([] if step.function == "lamb" else [0, 2, 4, 49, 51, 66], dtype=torch.long)
    ours, theirs = ([[group[0][kept], group[1]] for group in lists] for lists in (before, after))
    error = trial.error(ours, theirs, _of_parameters)
    holds = Holds({f"moments {moments} of NaN and infinity": not any(map(math.isfinite, moments))})
    holds[f"parameters {steps} of NaN and infinity"] = not any(map(math.isfinite, steps))
    holds[f"other elements, {error:g} times as far from float64 as is allowed"] = error <= 1
    what = f"{step.function} of {name} with a gradient that is not finite"
    holds.expect(what, "compute with the gradient as it is: users look for NaN in what was trained")


@pytest.mark.parametrize("name", needs.ops(name for name, step in STEPS.items() if step.many))
def test_flag_of_overflows_is_left_alone(accelerator: DeepSpeedAccelerator, created: Any, name: str) -> None:
    """The step is taken whatever the flag says, which the op does not write: not even if a gradient is infinite."""
    step, trial, holds = STEPS[name], _trial(accelerator, created, name, _LATE), Holds()
    for flag_value, number in ((1, 0.25), (0, torch.inf)):
        tensors = [[torch.full((9,), 0.5, device=trial.place)] for _ in range(2 + step.states)]
        tensors[0][0].fill_(number)
        flag = torch.full((1,), flag_value, dtype=torch.int32, device=trial.place)
        step.call(trial.op, tensors, trial.values, flag)
        holds[f"a step with the flag {flag_value}"] = not (tensors[1][0] == 0.5).all()
        holds.equal(f"the flag after a gradient of {number}", int(flag), flag_value)
    do = "neither read nor write the second argument: DeepSpeed looks for overflows itself, and never resets it"
    holds.expect(f"the flag of overflows of {step.function} of {name}", do)


@pytest.mark.parametrize("name", _BUILDERS)
@pytest.mark.parametrize("dtype", _TYPES)
def test_nothing_comes_of_nothing(
    accelerator: DeepSpeedAccelerator, created: Any, name: str, dtype: str
) -> None:
    """Without gradient, states and decay a step changes nothing but Lion's parameter, which grows; nothing is NaN.

    It grows by the learning rate on all devices, as by DeepSpeed's kernel for CUDA. On the host it may do anything.
    """
    step, kind = STEPS[name], _TYPES[dtype]
    needs.types(accelerator, kind)
    trial = _trial(accelerator, created, name, {**_LATE, "weight_decay": 0.0, "eps": 1e-8})
    before = [[torch.full((67,), 0.5 * (at == 1), dtype=kind)] for at in range(2 + step.states)]
    found = [group[0].double() for group in trial.take(before)[1:]]
    wanted = 0.5 + (trial.values["lr"] if name == "FusedLionBuilder" else 0.0)
    kept = name == "CPULionBuilder" or bool((found[0] - wanted).abs().max() <= torch.finfo(kind).eps)
    holds = Holds({f"a parameter of {wanted:g}, found {found[0][0]:g}": kept})
    for state in found[1:]:
        holds[f"a state of 0, found {float(state[0])}"] = not state.any() and not state.isnan().any()
    do = "compute in float32, in which epsilon is not 0, and put no other smallest number into states"
    holds.expect(f"{step.function} of {name} with gradients of 0", do)


_SETTINGS = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-8, "weight_decay": 0.1}
#: id: (builder, DeepSpeed's optimizer, arguments beside the settings, the reference's variant)
_CASES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "FusedAdam-AdamW": ("FusedAdamBuilder", "adam:FusedAdam", {}, "AdamW"),
    "FusedAdam-Adam": ("FusedAdamBuilder", "adam:FusedAdam", {"adam_w_mode": False}, "Adam"),
    "CPUAdam-AdamW": ("CPUAdamBuilder", "adam:DeepSpeedCPUAdam", {}, "AdamW"),
    "CPUAdam-Adam": ("CPUAdamBuilder", "adam:DeepSpeedCPUAdam", {"adamw_mode": False}, "Adam"),
    "CPUAdagrad": ("CPUAdagradBuilder", "adagrad:DeepSpeedCPUAdagrad", {}, "Adagrad"),
    "CPULion": ("CPULionBuilder", "lion:DeepSpeedCPULion", {}, "Lion"),
}


@pytest.mark.usefixtures("upstream")
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.needs(case[0])) for name, case in _CASES.items()]
)
def test_optimizer_steps_are_right(accelerator: DeepSpeedAccelerator, case: str) -> None:
    """Steps of DeepSpeed's optimizer on the device's op equal those in float64, within float32's precision."""
    name, path, arguments, variant = _CASES[case]
    builder, step, (module, _, cls) = accelerator.create_op_builder(name), STEPS[name], path.partition(":")
    expect(
        builder.is_compatible(),
        f"{name} is not declared missing and cannot be loaded",
        found=getattr(builder, "reason", "is_compatible() is False"),
        expected="an op that loads on this machine",
        do="provide what the reason names, or declare the trait",
    )
    taken = {key: each for key, each in _SETTINGS.items() if key in (*step.keys, "weight_decay")}
    optimizer = getattr(importlib.import_module(f"deepspeed.ops.{module}"), cls)
    place = _place(accelerator, step)
    # Sizes around the vector widths of kernels, and one that fills no vector; then a gradient for each step.
    start, *grads = (_uniform(step, [(1,), (31, 3), (257,)], seed=seed)[0] for seed in range(7, 11))
    params = [torch.nn.Parameter(tensor.to(place, copy=True)) for tensor in start]
    made = optimizer(params, **taken, **arguments)
    wanted = [[tensor.double(), *[torch.zeros_like(tensor).double()] * step.states] for tensor in start]
    values = {**taken, "weight_decay": _SETTINGS["weight_decay"], **step.variants[variant]}
    for number, some in enumerate(grads, 1):
        for param, grad in zip(params, some, strict=True):
            # DeepSpeed's host Adagrad leaves its update in the gradient.
            param.grad = grad.to(place, copy=True)
        made.step()
        wanted = [
            step.wanted({**values, "step": number}, grad.double(), *each)
            for grad, each in zip(some, wanted, strict=True)
        ]
    holds = Holds()
    for param, (exact, *_) in zip(params, wanted, strict=True):
        holds.near(f"{tuple(param.shape)} after {len(grads)} steps on numbers below 1", param, exact, 1e-5)
    what = f"{cls} on {accelerator.device_name()}"
    holds.expect(what, f"compare the op that {name} loads with the optimizer's paper")
