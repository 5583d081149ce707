# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Specs of steps of optimizers: sequences of steps, and single steps on numbers of every size, type and count.

Arguments are lists of tensors, and the hyperparameters of `accel_ops.reference`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from accel_ops import reference
from accel_testkit.suite.expect import largest
from accel_testkit.suite.ops.spec import Numbers, OpSpec, Sample, Tensor, Values, error

Lists = list[list[Tensor]]
#: Largest error of parameters (0) or states (1, 2), from what was found, the float64 values, and the tensors before.
StepError = Callable[[int, Tensor, Tensor, list[Tensor]], "Tensor | float"]
#: The first of the IDs that no optimizer of DeepSpeed has: it counts from 0. There is one for each mode, for threads.
FIRST_ID = 2**31 - 9
#: Names of the lists of tensors; not every optimizer has both states.
_LISTS = ("grads", "params", "firsts", "seconds")
#: Hyperparameters of consecutive steps: DeepSpeed's defaults first; then every one changes, and step numbers leap.
_SCHEDULE: dict[str, list[Any]] = {
    "step": [1, 2, 3, 700, 100_000],
    "lr": [0.05, 0.013, 0.09, 0.02, 0.004],
    "betas": [(0.9, 0.999), (0.8, 0.95), (0.5, 0.7), (0.95, 0.99), (0.8, 0.98)],
    "eps": [1e-8, 1e-2, 1e-6, 1e-8, 1e-3],
    "weight_decay": [0.1, 0.0, 0.3, 0.01, 0.2],
    "scale": [1.0, 2.0, 1.0, 0.5, 3.0],
    "bounds": [(0.01, 10.0), (0.01, 0.3), (4.0, 10.0), (0.01, 10.0), (0.1, 3.0)],
}
#: A late step, whose second moment is still far from its mean.
_LATE: Values = {"step": 2000, "betas": (0.9, 0.9999), "scale": 65536.0}
#: Around the vector widths of kernels and the chunks that they work in, and no element at all.
_SIZES = (0, 1, 7, 257, 1023, 1024, 1025, 4097)
#: Largest error of a step on numbers below 1, by the type that holds them.
_ERRORS = {torch.float32: 3e-6, torch.float16: 4e-3, torch.bfloat16: 3.2e-2}
#: Powers of two that numbers below 1 are multiplied by: what the type and its squares hold.
_POWERS = {torch.bfloat16: (-18, 19), torch.float16: (-3, 4)}
#: Numbers of gradients, parameters and states whose squares float32 holds; and such that are not finite.
_EXTREMES = (
    (0.0, -0.0, 1e-45, -3e-42, 1e-30, -1e-20, 1e-8, 1.0, -6e4, 1e8, -1e18, math.inf, -math.inf, math.nan),
    (0.0, 1e-40, -1e-10, 1.0, 3e4, 1e18, -math.inf, math.inf),
    (0.0, 1e-42, -1.0, 1e10),
    (0.0, 1e-44, 1e-16, 1.0, 1e20),
)  # fmt: skip


def _never(values: Values, start: list[Tensor]) -> Tensor:
    return torch.zeros_like(start[0], dtype=torch.bool)


@dataclass(frozen=True)
class Optimizer:
    """A step function, and the settings that hold for an optimizer.

    function:  upstream's name.  called: takes a step with the arguments of a sample.
    states:    tensors in addition to gradient and parameter; squares: the last one is a mean or sum of squares.
    keys:      hyperparameters that it takes.
    reference: the definition of one tensor's step.
    modes:     settings that an optimizer may have, by name.
    many:      it takes lists, and a flag of overflows that it neither reads nor writes.
    each:      no element depends on another one, and no sum near zero decides the direction.
    undecided: parameters that may be anything after a step.
    """

    function: str
    called: Callable[[Any, Values], Iterable[Tensor]]
    states: int
    keys: tuple[str, ...]
    reference: Callable[..., list[Tensor]]
    modes: Mapping[str, Values] = field(default_factory=lambda: {"": {}})
    settings: Values = field(default_factory=dict)
    many: bool = False
    host: bool = False
    squares: bool = True
    each: bool = True
    undecided: Callable[[Values, list[Tensor]], Tensor] = _never

    @property
    def lamb(self) -> bool:
        """True for LAMB, which divides gradients by a scale, and returns a ratio of norms."""
        return "bounds" in self.keys

    @property
    def lists(self) -> tuple[str, ...]:
        """Names of the lists of tensors of a step."""
        return _LISTS[: 2 + self.states]

    def values(self, number: int, **others: Any) -> Values:
        """Return the hyperparameters of a step of the schedule, but for the others that are passed."""
        return {key: others.get(key, _SCHEDULE[key][number]) for key in self.keys} | self.settings

    @property
    def number(self) -> int:
        """The ID of an optimizer of these settings."""
        return FIRST_ID + sum(int(value) << at for at, value in enumerate(self.settings.values()))

    def units(self, size: float) -> list[float]:
        """Return what parameters and states are measured in where gradients are of a size."""
        return [1.0, *[size] * (self.states - self.squares), *[size**2] * self.squares]

    def sample(
        self, new: Numbers, what: str, lists: Lists, values: Values, allowed: StepError, **more: Any
    ) -> Sample:
        """Return the first step of a new optimizer on lists of tensors."""
        tensors = dict(zip(self.lists, lists, strict=True))
        others: Values = {"flag": torch.zeros(1, dtype=torch.int32)} if self.many else {}
        others |= {"copy": torch.zeros(0)} if self.lamb else {}
        arguments = {**tensors, **values, **others, "id": self.number, "begin": ("create",)}
        results = partial(self._errors, new.dtype, lists, values, allowed)
        return Sample(arguments, results, what=f"{what}, {values}", **more)

    def _errors(
        self, dtype: torch.dtype, lists: Lists, values: Values, allowed: StepError, found: list[Tensor]
    ) -> dict[str, float]:
        """Return how many times further than allowed each list is from a float64 step from the same numbers."""
        count, errors = len(lists[0]), dict.fromkeys(self.lists[1:], 0.0)
        for number, tensors in enumerate(zip(*lists, strict=True)):
            start = [each.double() for each in tensors]
            wanted = self.reference(*start, **values)
            for at, name in enumerate(errors):
                one, before = found[at * count + number].detach().cpu(), tensors[at + 1]
                if one.dtype != (dtype if before.dtype == torch.float64 else before.dtype):
                    return {f"{name} in {one.dtype}": math.inf}
                free = self.undecided(values, start) if at == 0 else _never(values, start)
                exact = wanted[at].where(~free, one.double())
                times = error(one, exact, allowed(at, one, wanted[at], start))
                errors[name] = largest([errors[name], times])
        return errors


# ------------------------------------------------------------------------------- numbers of a step


def _held(tensor: Tensor, dtype: torch.dtype, new: Numbers) -> Tensor:
    """Return numbers that a type holds, in float64 where it is the type under test."""
    return tensor.to(dtype).double() if dtype == new.dtype else tensor.to(dtype)


def _uniform(
    of: Optimizer, new: Numbers, sizes: Iterable[Any], states: torch.dtype | None = None, seed: int = 13
) -> Lists:
    """Return numbers below 0.5; squares are not negative. states: their type, if it is another one."""
    generator = torch.Generator().manual_seed(seed)
    kinds, sizes = [*[new.dtype] * 2, *[states or new.dtype] * of.states], list(sizes)
    lists = [
        [_held(torch.rand(size, generator=generator).sub(0.5), kind, new) for size in sizes] for kind in kinds
    ]
    return [*lists[:-1], [tensor.abs() for tensor in lists[-1]]] if of.squares else lists


def _scaled(of: Optimizer, new: Numbers, sizes: Iterable[int], size: float = 1.0) -> Lists:
    """Return numbers with gradients times LAMB's scale and `size`; some are 0, alone or in the whole tensor."""
    lists = _uniform(of, new, sizes, seed=29)
    for group, unit in zip(lists, [size * 65536.0**of.lamb, *of.units(size)], strict=True):
        group[:] = [new.rounded(tensor * unit) for tensor in group]
    for tensor in lists[0]:
        tensor.view(-1)[::3] = 0.0
    lists[0][-1].zero_()
    return lists


def _spread(of: Optimizer, new: Numbers) -> Lists:
    """Return numbers of very different size in a half type."""
    generator = torch.Generator().manual_seed(41)
    lists = []
    for _ in of.lists:
        powers = torch.randint(*_POWERS[new.dtype], (4099,), generator=generator, dtype=torch.float64)
        numbers = torch.rand(4099, generator=generator, dtype=torch.float64) - 0.5
        lists.append([new.rounded(numbers * powers.exp2())])
    return [*lists[:-1], [lists[-1][0].abs()]]


def _constant(of: Optimizer, new: Numbers, count: int, *numbers: float) -> Lists:
    return [
        [_held(torch.full((count,), number), new.dtype, new)]
        for number, _ in zip(numbers, of.lists, strict=False)
    ]


def _extremes(of: Optimizer) -> Lists:
    """Return each gradient with each parameter and each state."""
    taken = [*_EXTREMES[:2], *_EXTREMES[-1 if of.states == 1 else 2 :]]
    numbers = torch.tensor(list(itertools.product(*taken))).double()
    return [[column.clone()] for column in numbers.unbind(1)]


# ------------------------------------------------------------------------------- how far a step may be off


def _below_one(at: int, found: Tensor, exact: Tensor, start: list[Tensor]) -> float:
    """An error of numbers below 1, by the tensor's own type."""
    return _ERRORS[found.dtype]


def _of_size(of: Optimizer, size: float = 1.0) -> StepError:
    """LAMB multiplies its update by a ratio of up to 10."""
    return lambda at, *_: (3e-5 if of.lamb else 3e-6) * of.units(size)[at]


def _one_rounding(at: int, found: Tensor, exact: Tensor, start: list[Tensor]) -> Tensor:
    """One rounding at the end; what cancels leaves float32's rounding of the larger number behind."""
    kind = torch.finfo(found.dtype)
    cancelled = 4e-7 * torch.stack(start).abs().sum(0)
    return 1.02 * (exact.abs() * kind.eps / 2 + cancelled + kind.tiny)


def _of_terms(at: int, found: Tensor, exact: Tensor, start: list[Tensor]) -> Tensor:
    """Some roundings of the terms of a sum that is not one of squares, and an update of subnormal numbers."""
    grad, param, *states = start
    terms = [param] if at == 0 else [grad, param, states[0]] if at < len(states) else []
    sizes = torch.stack([each.abs().nan_to_num(0.0, 0.0, 0.0) for each in (exact, *terms)])
    return 4e-6 * sizes.sum(0) + 1e-34


def _kept(at: int, found: Tensor, exact: Tensor, start: list[Tensor]) -> float:
    return float(torch.finfo(found.dtype).eps) if at == 0 else 0.0


# ------------------------------------------------------------------------------- samples


def _samples(of: Optimizer, new: Numbers) -> Iterator[Sample]:
    small, sample = _of_size(of), partial(of.sample, new)
    wide = new.dtype == torch.float32
    shapes = _uniform(of, new, [(6, 5), (2, 3, 4, 5)], seed=29)
    yield sample("two shapes", shapes, of.values(0), small if wide else _below_one)
    late, still = of.values(0, **_LATE), of.values(0, **_LATE, weight_decay=0.0)
    zeros = _constant(of, new, 67, 0.0, 0.5, 0.0, 0.0)
    yield sample("nothing", zeros, of.values(0, **_LATE, weight_decay=0.0, eps=1e-8), _kept)
    sizes = _SIZES[1:]
    yield sample("leaves", _uniform(of, new, sizes), of.values(0), _below_one, leaves=("params",))
    if wide:
        yield from _sequences(of, new)
        yield from _of_float32(of, new, late, still)
        return
    for number, states in itertools.product(range(3), (None, torch.float32)[: 1 + of.host]):
        lists = _uniform(of, new, sizes, states)
        yield sample(f"states of {states or 'its type'}", lists, of.values(number), _below_one)
    if of.each:
        yield sample("of every size", _spread(of, new), of.values(0), _one_rounding)
    if of.lamb and new.dtype == torch.float16:
        values = of.values(0, weight_decay=0.0, bounds=(0.01, 1e4), lr=0.01)
        lists = _constant(of, new, 4096, 0.5, 200.0, 0.25, 0.25)
        yield sample("norm beyond float16", lists, values, lambda *_: 0.25)


def _of_float32(of: Optimizer, new: Numbers, late: Values, still: Values) -> Iterator[Sample]:
    small, sample, few = _of_size(of), partial(of.sample, new), _scaled(of, new, [67, 5])
    for name, size in (("tiny", 1e-7), ("huge", 1e4)):
        yield sample(name, _scaled(of, new, [67, 5], size), still, _of_size(of, size))
    for values in (late | {"lr": 0.0}, still, of.values(0, **_LATE | {"betas": (0.0, 0.0)})):
        yield sample("0 for a hyperparameter", few, values, small)
    spoiled = _scaled(of, new, [67, 5])
    spoiled[0][0][[3, 50]] = torch.tensor([torch.nan, torch.inf], dtype=torch.float64)
    yield sample("a gradient that is not finite", spoiled, late, small)
    if of.many:
        flagged = sample("a flag of overflows", few, late, small)
        yield replace(flagged, arguments={**flagged.arguments, "flag": torch.ones(1, dtype=torch.int32)})
    if of.each:
        yield sample("extremes", _extremes(of), of.values(0, step=7, betas=(0.9, 0.999)), _of_terms)
    if of.lamb:
        values = of.values(0, weight_decay=0.0)
        for numbers in ((0.5, 0.0), (0.0, 0.25), (0.5, 0.25), (0.0, 0.0)):
            lists = _constant(of, new, 16, *numbers, 0.0, 0.0)
            yield sample("a norm of 0 or 1", lists, values, lambda *_: 1e-5)
        yield from (_trusted(of, new, number) for number in range(5))
    # Beyond the elements and the tensors of one launch, as far as is known.
    sizes = [(1 << 20) + 3, *range(1, 131), *[1] * 1000] if of.many else [(1 << 20) + 3, 1, 2, 3]
    yield sample("large tensors, long lists", _scaled(of, new, sizes), late, small)


def _sequences(of: Optimizer, new: Numbers) -> Iterator[Sample]:
    """Yield five steps of one optimizer, whose hyperparameters change, and steps of two in turn."""
    # No tensor is empty where a function of the device takes one tensor.
    sizes = _SIZES if of.many or of.host else _SIZES[1:]
    yield _steps(of, new, [_uniform(of, new, sizes)[1:]], _ALONE)
    if of.host:
        yield _steps(of, new, [_uniform(of, new, (9, 300), seed=seed)[1:] for seed in range(2)], _TURNS)


def _listed(like: Lists, found: list[Tensor]) -> Lists:
    """Return the parameters and states among results, in float64."""
    size = len(like[0])
    return [[each.double() for each in found[at * size : (at + 1) * size]] for at in range(len(like))]


#: Which of two optimizers takes a step, whether with the other settings, and what is done before.
_ALONE = ((0, False, ("create",)), *[(0, False, ())] * 4)
_TURNS = (
    (0, False, ("create",)), (1, True, ("create",)), (0, False, ()), (1, True, ()),
    (1, False, ("destroy", "destroy", "create")), (0, True, ("create",)),
)  # fmt: skip


def _steps(
    of: Optimizer,
    new: Numbers,
    each: list[Lists],
    turns: tuple[tuple[int, bool, tuple[str, ...]], ...],
    turn: int = 0,
) -> Sample:
    """Return a step of one of the optimizers, which may be created again before; the next step goes on from it."""
    which, changed, begin = turns[turn]
    taking = replace(of, settings={key: value is not changed for key, value in of.settings.items()})
    lists = each[which]
    grads = _uniform(of, new, [one.shape for one in lists[0]], seed=turn)[0]
    step = taking.sample(new, f"turn {turn}", [grads, *lists], taking.values(turn % 5), _below_one, offset=1)

    def then(found: list[Tensor]) -> Sample | None:
        after = [_listed(lists, found) if number == which else one for number, one in enumerate(each)]
        return _steps(of, new, after, turns, turn + 1) if turn < len(turns) - 1 else None

    arguments = step.arguments | {"id": of.number + 4 * which, "begin": begin}
    return replace(step, arguments=arguments, then=then)


def _trusted(of: Optimizer, new: Numbers, number: int) -> Sample:
    """Return a step of LAMB that fills a copy of another type, as DeepSpeed passes it, and returns its ratio."""
    lists, values = _uniform(of, new, [(33, 5)]), of.values(number)
    step = of.sample(new, f"step {number} with a copy", lists, values, _below_one, leaves=("copy",))
    param, *_, ratio = of.reference(*(group[0] for group in lists), **values)

    def errors(found: list[Tensor]) -> dict[str, float]:
        return of._errors(new.dtype, lists, values, _below_one, found) | {
            "the copy of the parameter": error(found[3], param, 2e-3),
            "the trust ratio": error(found[4].view(()), ratio, 1e-4 * ratio),
        }

    copy = torch.zeros(33, 5, dtype=torch.float16)
    return replace(step, arguments=step.arguments | {"copy": copy}, results=errors)


# ------------------------------------------------------------------------------- calls


def _fused_adam(op: Any, a: Values) -> tuple[Tensor, ...]:
    modes = int(a["decoupled"]), int(a["bias_correction"])
    settings = a["lr"], *a["betas"], a["eps"], a["step"], *modes, a["weight_decay"]
    op.multi_tensor_adam(2048, a["flag"], [a[name] for name in _LISTS], *settings)
    return ()


def _fused_lion(op: Any, a: Values) -> tuple[Tensor, ...]:
    settings = a["lr"], *a["betas"], a["step"], a["weight_decay"]
    op.multi_tensor_lion(2048, a["flag"], [a[name] for name in _LISTS[:3]], *settings)
    return ()


def _fused_lamb(op: Any, a: Values) -> list[Tensor]:
    least, most = a["bounds"]
    rates = a["lr"], *a["betas"], most, least, a["eps"], a["scale"]
    flags = int(not a["eps_inside"]), int(a["bias_correction"])
    ratios = []
    for grad, param, first, second in _tensors(a):
        ratio = op.lamb(param, a["copy"], first, second, grad, *rates, a["step"], *flags, a["weight_decay"])
        if not isinstance(ratio, Tensor) or ratio.numel() != 1:
            raise AssertionError(f"lamb returns {ratio!r}, expected a tensor with the trust ratio")
        ratios.append(ratio)
    return ratios


def _tensors(a: Values) -> Iterator[tuple[Tensor, ...]]:
    yield from zip(*(a[name] for name in _LISTS if name in a), strict=True)


def _begin(op: Any, name: str, a: Values, *settings: Any) -> None:
    """Create or destroy an optimizer; its hyperparameters are of no step."""
    for what in a["begin"]:
        getattr(op, f"{what}_{name}")(a["id"], *(settings if what == "create" else ()))


def _cpu_adam(op: Any, a: Values) -> tuple[Tensor, ...]:
    _begin(op, "adam", a, 0.7, 0.1, 0.2, 0.3, 0.4, a["decoupled"], False)
    settings = a["lr"], *a["betas"], a["eps"], a["weight_decay"], a["bias_correction"]
    for grad, param, first, second in _tensors(a):
        op.adam_update(a["id"], a["step"], *settings, param, grad, first, second)
    return ()


def _cpu_adagrad(op: Any, a: Values) -> tuple[Tensor, ...]:
    _begin(op, "adagrad", a, 0.7, 0.3, 0.4, False)
    for grad, param, total in _tensors(a):
        # A copy: upstream's leaves its update in the gradient.
        op.adagrad_update(
            a["id"], a["step"], a["lr"], a["eps"], a["weight_decay"], param, grad.clone(), total
        )
    return ()


def _cpu_lion(op: Any, a: Values) -> tuple[Tensor, ...]:
    _begin(op, "lion", a, 0.7, 0.1, 0.2, 0.4, False)
    for grad, param, momentum in _tensors(a):
        op.lion_update(a["id"], a["step"], a["lr"], *a["betas"], a["weight_decay"], param, grad, momentum)
    return ()


def _near_zero(values: Values, start: list[Tensor]) -> Tensor:
    # As far as float32 may be off, in whatever order it is summed. Where a sign counts, infinity has one.
    grad, _, momentum = start
    beta: float = values["betas"][0]
    sizes = momentum.abs() + grad.abs()
    return ((beta * momentum + (1 - beta) * grad).abs() < 1e-6 * sizes) | ~grad.isfinite()


def _near_zero_or_zero(values: Values, start: list[Tensor]) -> Tensor:
    # Without gradient and momentum a device's step is DeepSpeed's on CUDA; the host may do anything.
    return _near_zero(values, start) | ((start[0] == 0) & (start[2] == 0))


def _of_one_ratio(values: Values, start: list[Tensor]) -> Tensor:
    # One gradient that is not finite spoils the ratio, which is of the whole tensor.
    return start[0].isfinite() & ~start[0].isfinite().all()


_ADAM = ("step", "lr", "betas", "eps", "weight_decay")
_LION = ("step", "lr", "betas", "weight_decay")
_ADAM_MODES: dict[str, Values] = {
    f"{mode}{correction}": {"decoupled": mode == "AdamW", "bias_correction": not correction}
    for mode in ("Adam", "AdamW")
    for correction in ("", " uncorrected")
}
_LAMB_MODES: dict[str, Values] = {
    "corrected": {"bias_correction": True, "eps_inside": False},
    "uncorrected": {"bias_correction": False, "eps_inside": False},
    "eps inside": {"bias_correction": True, "eps_inside": True},
}
#: By the class name of the builder.
OPTIMIZERS = {
    "FusedAdamBuilder": Optimizer(
        "multi_tensor_adam", _fused_adam, 2, _ADAM, reference.adam, _ADAM_MODES, many=True
    ),
    "FusedLionBuilder": Optimizer(
        "multi_tensor_lion", _fused_lion, 1, _LION, partial(reference.lion, at_zero=-1.0), many=True, squares=False,
        each=False, undecided=_near_zero,
    ),
    "FusedLambBuilder": Optimizer(
        "lamb", _fused_lamb, 2, (*_ADAM, "scale", "bounds"), reference.lamb, _LAMB_MODES, each=False,
        undecided=_of_one_ratio,
    ),
    "CPUAdamBuilder": Optimizer("adam_update", _cpu_adam, 2, _ADAM, reference.adam, _ADAM_MODES, host=True),
    "CPUAdagradBuilder": Optimizer(
        "adagrad_update", _cpu_adagrad, 1, ("step", "lr", "eps", "weight_decay"), reference.adagrad, host=True
    ),
    "CPULionBuilder": Optimizer(
        "lion_update", _cpu_lion, 1, _LION, reference.lion, host=True, squares=False, each=False,
        undecided=_near_zero_or_zero,
    ),
}  # fmt: skip
FUSED = tuple(name for name, of in OPTIMIZERS.items() if not of.host)
ON_HOST = tuple(name for name, of in OPTIMIZERS.items() if of.host)
SPECS = tuple(
    OpSpec(
        builder, of.function, partial(_samples, replace(of, settings=settings)),
        (*of.lists[1:], *(("copy",) if of.lamb else ())), rejects=False, what=f"{of.function} {mode}".rstrip(),
        called=of.called, host=of.host,
    )
    for builder, of in OPTIMIZERS.items()
    for mode, settings in of.modes.items()
)  # fmt: skip
