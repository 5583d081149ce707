# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`OpSpec`: a function of an op, samples of right calls with results in float64, and calls that must be rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

Tensor = torch.Tensor
Values = dict[str, Any]
#: Largest error of a result, from its float64 value and its type.
Allowed = Callable[[Tensor, torch.dtype], "Tensor | float"]

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
NAMES = {
    torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64", torch.int64: "int64",
}  # fmt: skip

#: What an argument is changed to; each has to be rejected unless `OpSpec.taken` names it.
TYPE, FLOAT = "another type", "another float type"
SHORTER, FEWER, MORE, NONE = "one shorter", "one row fewer", "one dimension more", "no dimension"


def exact(wanted: Tensor, dtype: torch.dtype) -> float:
    """No error at all."""
    return 0.0


def sums(wanted: Tensor, dtype: torch.dtype) -> float:
    """Sums of some tens of products of numbers below 1, with intermediates of the type."""
    return {torch.float32: 2e-5, torch.float16: 2e-2, torch.bfloat16: 1.6e-1}[dtype]


def once(wanted: Tensor, dtype: torch.dtype) -> Tensor:
    """One rounding at the end, of what was computed in float32."""
    return 1.02 * (wanted.abs() * torch.finfo(dtype).eps / 2 + 4e-7 * (1 + wanted.abs()))


def roundings(count: float, floor: float = 1.0) -> Allowed:
    """Return an error of `count` roundings of the type; floor: the smallest number that is rounded."""
    return lambda wanted, dtype: count * torch.finfo(dtype).eps * (floor + wanted.abs())


def wrong(fact: object) -> float:
    """Return inf for a fact that must not be, else 0, as an error."""
    return float("inf") if fact else 0.0


def error(found: Any, wanted: Tensor, allowed: Tensor | float) -> float:
    """Return how many times further from `wanted` a result is than allowed.

    Inf for another shape, or where one is finite in the result's type and the other is not.
    """
    if not isinstance(found, Tensor) or found.shape != wanted.shape:
        return float("inf")
    mine, wanted = found.detach().cpu().double(), wanted.double()
    finite = wanted.to(found.dtype).isfinite()
    if not torch.equal(mine.isfinite(), finite):
        return float("inf")
    apart = (mine - wanted).abs().where(finite, 0.0)
    ratios = torch.where(apart == 0, 0.0, apart / allowed)
    return float(ratios.max()) if ratios.numel() else 0.0


@dataclass(frozen=True)
class Sample:
    """A right call, or the first one of a sequence.

    arguments: in order, by name, on the host; lists of tensors, too. Tensors of float64 are passed in the type under
               test, other tensors as they are; a function creates its tensor from device and type.
    results:   float64 tensors for what is written, then for what is returned, in the type under test; other types as
               they are. Or a function of these results that returns {what: times as far off as is allowed}.
    allowed:   the largest error.  what: the case in reports.
    alias:     argument -> the argument whose tensor it is, too.
    then:      returns the next call of the sequence from the results of this one, which are on the host.
    leaves:    arguments that are leaves of autograd.
    offset:    how many elements lie before each tensor in its memory.
    """

    arguments: Values
    results: list[Tensor] | Callable[[list[Tensor]], dict[str, float]]
    allowed: Allowed = exact
    what: str = ""
    alias: Mapping[str, str] = field(default_factory=dict)
    then: Callable[[list[Tensor]], Sample | None] | None = None
    leaves: tuple[str, ...] = ()
    offset: int = 0

    def placed(self, device: torch.device, dtype: torch.dtype) -> Values:
        """Return the arguments with new tensors on the device, each in memory with other numbers around it."""

        def place(value: Any) -> Any:
            if isinstance(value, Tensor):
                kind = dtype if value.dtype == torch.float64 else value.dtype
                return framed(value.to(device, kind, copy=True), self.offset)
            return value(device, dtype) if callable(value) else value

        values: Values = tree_map(place, self.arguments)
        return values | {name: values[other] for name, other in self.alias.items()}

    def errors(self, found: list[Tensor], dtype: torch.dtype) -> dict[str, float]:
        """Return how many times further from float64 than allowed each result is, by what it is."""
        if callable(self.results):
            return self.results(found)
        counts = len(found), len(self.results)
        errors = {f"{counts[0]} results, expected {counts[1]}": wrong(counts[0] != counts[1])}
        for at, (one, wanted) in enumerate(zip(found, self.results, strict=False)):
            kind = dtype if wanted.dtype == torch.float64 else wanted.dtype
            if getattr(one, "dtype", None) != kind:
                errors[f"result {at}: {getattr(one, 'dtype', one)}, expected {kind}"] = wrong(True)
            else:
                errors[f"result {at}"] = error(one, wanted, self.allowed(wanted.double(), kind))
        return errors


#: What lies around a tensor in its memory.
SENTINEL = 77


def framed(tensor: Tensor, offset: int) -> Tensor:
    """Return a copy of the same strides, in memory with `offset` other numbers before it and two behind it."""
    whole = tensor.new_full((offset + tensor.numel() + 2,), SENTINEL)
    return whole.as_strided(tensor.shape, tensor.stride(), offset).copy_(tensor)


def is_framed(view: Tensor) -> bool:
    """Return whether all around a tensor is as it was. The tensor is overwritten."""
    whole = view._base
    if whole is None or whole.numel() <= view.numel():
        return True
    view.detach().fill_(SENTINEL)
    return bool((whole == whole.new_full((), SENTINEL)).all())


@dataclass(frozen=True)
class OpSpec:
    """A function of an op.

    builder:  class name of the builder; function: upstream's name, without the float type where it has one of each.
    samples:  make right calls with numbers of a type. The first one is the one that is changed below.
    written:  arguments that the function writes. in_place: it returns the written one.
    types:    types of samples. what: a name for reports. typed: upstream has a function for each float type.
    strides:  the argument whose order of memory the results have; contiguous if empty.
    rejects:  arguments that do not fit have to be rejected.
    numbers:  argument -> what is wrong with it -> a value. together: what is wrong -> several arguments.
    taken:    (argument, change) that is right, too.
    sizes:    the error may name a size in place of an argument. named: arguments that it names, whatever else it
              leaves out. said: a pattern of the function's name in errors, if it is not that of the function.
    random:   the same arguments need not give the same results.
    detached: leaves of autograd are taken, and results have no history.
    called:   calls a loaded op with arguments, where they are not those of the function.
    host:     the tensors are the host's, on every device.
    shares:   calls share memory in the op: one thread makes them, and the next call may overwrite results.
    """

    builder: str
    function: str
    samples: Callable[[Numbers], Iterator[Sample]]
    written: tuple[str, ...] = ()
    in_place: bool = False
    types: tuple[torch.dtype, ...] = FLOATS
    typed: bool = False
    strides: str = ""
    rejects: bool = True
    numbers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    together: Mapping[str, Values] = field(default_factory=dict)
    taken: frozenset[tuple[str, str]] = frozenset()
    sizes: bool = False
    named: frozenset[str] = frozenset()
    said: str = ""
    what: str = ""
    random: bool = False
    detached: bool = False
    called: Callable[[Any, Values], Iterable[Tensor]] | None = None
    host: bool = False
    shares: bool = False

    @property
    def name(self) -> str:
        """The builder and the function, or what of it is tried."""
        return f"{self.builder}-{self.what or self.function}"

    def place(self, device: torch.device) -> torch.device:
        """Return where the tensors are."""
        return torch.device("cpu") if self.host else device

    def of(self, op: Any, dtype: torch.dtype) -> Callable[..., Any]:
        """Return the function of a loaded op."""
        function: Callable[..., Any] = (
            typed(op, self.function, dtype) if self.typed else getattr(op, self.function)
        )
        return function

    def call(self, op: Any, dtype: torch.dtype, arguments: Values) -> list[Tensor]:
        """Return what the function writes, then what it returns."""
        returned = self.called(op, arguments) if self.called else self.of(op, dtype)(*arguments.values())
        written = [tensor for name in self.written for tensor in tree_leaves(arguments[name])]
        if self.in_place:
            if not isinstance(returned, Tensor) or returned.data_ptr() != written[0].data_ptr():
                raise AssertionError(f"{self.function} does not return the tensor that it writes")
            return written
        return written + ([returned] if isinstance(returned, Tensor) else [*(returned or ())])

    def first(self, dtype: torch.dtype) -> Sample:
        """Return the first sample of a type, or of the first type that the function has."""
        return next(self.samples(Numbers(dtype if dtype in self.types else self.types[0])))


def typed(op: Any, name: str, dtype: torch.dtype) -> Any:
    """Return a function for one float type."""
    return getattr(op, f"{name}_{NAMES[dtype]}")


def takes(**changes: tuple[str, ...]) -> frozenset[tuple[str, str]]:
    """Return pairs of argument and change; another type includes another float type."""
    pairs = {(name, change) for name, some in changes.items() for change in some}
    return frozenset(pairs | {(name, FLOAT) for name, change in pairs if change == TYPE})


class Numbers:
    """Random numbers that a type holds, in float64, the same for each sequence of calls."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._generator = torch.Generator().manual_seed(31)

    def __call__(self, *shape: int, times: float = 1.0) -> Tensor:
        """Return numbers in [-times, times)."""
        return self.rounded(
            (torch.rand(shape, generator=self._generator, dtype=torch.float64) * 2 - 1) * times
        )

    def normal(self, *shape: int, times: float = 1.0) -> Tensor:
        """Return normally distributed numbers."""
        return self.rounded(torch.randn(shape, generator=self._generator, dtype=torch.float64) * times)

    def rounded(self, numbers: Tensor) -> Tensor:
        """Return the nearest numbers of the type."""
        return numbers.to(self.dtype).double()


def nothing_yet(*shape: int) -> Tensor:
    """Return an output tensor of NaN: new memory may hold the right numbers of another call."""
    return torch.full(shape, torch.nan, dtype=torch.float64)


#: Rows of eight numbers, extreme and degenerate; their squares are numbers of float32.
EXTREMES = {
    "zeros": [0.0] * 8,
    "zeros of both signs": [0.0, -0.0] * 4,
    "one number, others 0": [0.0] * 7 + [3e4],
    "a small constant": [-0.1] * 8,
    "a large constant": [-6e4] * 8,
    "subnormal": [1e-40, -3e-42, 0.0, 1e-45] * 2,
    "tiny": [1e-30 * (number - 3) for number in range(8)],
    "large": [1e18, -1e18, 0.0, 1e17] * 2,
    "of every size": [1e-20, -1e-10, 1e-5, 1.0, -1e4, 1e8, 1e12, -1e16],
    "halfway": [number + 0.5 for number in range(-4, 4)],
    "an infinity": [torch.inf, *[1.0] * 7],
    "both infinities": [torch.inf, -torch.inf, *[1.0] * 6],
    "a NaN": [*[1.0] * 7, torch.nan],
}


def extremes(new: Numbers, width: int = 8) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and the numbers of each row of `EXTREMES`, (1, width)."""
    for name, row in EXTREMES.items():
        yield name, new.rounded(torch.tensor([row[:width]], dtype=torch.float64))
