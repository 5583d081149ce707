# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where two recorded runs begin to differ by more than rounding explains.

An event is to blame if its inputs agree and its results do not. Agreement is relative: an error of the inputs may
grow by `GROWTH`, and each computation may add the rounding of its types.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from accel_compare.digest import Digest
from accel_compare.record import (
    BACKWARD,
    COLLECTIVE,
    FLATTENED,
    GRADIENT_OF_PARAMETER,
    GRADIENT_OF_RESULT,
    PARAMETER,
    STEP,
    Key,
    OpCall,
    RankRecord,
)
from accel_core.errors import InvalidInput

#: By which a computation may multiply the relative error of what it reads.
GROWTH = 16.0
_EPSILON = {
    "float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7,
    "complex128": 2.0**-52, "complex64": 2.0**-23, "complex32": 2.0**-10,
}  # fmt: skip
_FLOAT8 = 2.0**-2
_INFINITE = math.inf
#: A gradient is compared with others; one that is smaller by this factor is rounding.
_NEGLIGIBLE = 1e-3


@dataclass(frozen=True)
class Difference:
    """The first event that differs beyond its bound.

    rank, key: which event.
    what:      `result` or `input`: an input that no recorded event has computed, the data for example.
    number:    which of the results or inputs, from 0.
    error:     relative; inf if one has another shape, or NaN and Inf elsewhere.
    bound:     what rounding explains.
    reason:    where the bound comes from.
    before:    the event before it on this rank, which agrees; None at the start.
    """

    rank: int
    key: Key
    what: str
    number: int
    reference: Digest
    found: Digest
    error: float
    bound: float
    reason: str
    before: Key | None


@dataclass(frozen=True)
class Compared:
    """The comparison of two runs.

    first:     the first difference; None if there is none.
    nearest:   where there is none, the event whose error is the largest part of its bound; None if all bits agree.
    errors:    the largest error of the results at each place and step: {(phase, where): {step: error}}, in order.
    compared:  number of events that both runs have.
    unmatched: events of one run that the other has not.
    """

    first: Difference | None
    errors: dict[tuple[str, str], dict[int, float]]
    compared: int
    unmatched: tuple[Key, ...]
    notes: tuple[str, ...]
    nearest: Difference | None = None


def compare(reference: Sequence[RankRecord], found: Sequence[RankRecord], factor: float = 1.0) -> Compared:
    """Compare a run with the reference. factor: multiplies all bounds. Raises `InvalidInput`."""
    if len(reference) != len(found):
        raise InvalidInput(
            f"two runs cannot be compared: {len(reference)} ranks in the record, {len(found)} now",
            do="start the program as it was recorded",
        )
    pairs = [_matched(*ranks) for ranks in zip(reference, found, strict=True)]
    sent = _sent(pairs)
    errors: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    firsts, nearest = [], list[Difference]()
    for rank, (events, _) in enumerate(pairs):
        walk = _Walk(rank, factor, sent, errors)
        firsts += [(n, one) for n, one in walk.differences(events)][:1]
        nearest += [walk.nearest] if walk.nearest else []
    # The same event on several ranks: the place in the run decides, then the rank.
    first = min(firsts, key=lambda item: (item[1].key.step, item[0], item[1].rank), default=None)
    notes = [
        f"rank {rank.rank} of the {which} ended before it had written everything"
        for which, ranks in (("record", reference), ("replay", found))
        for rank in ranks
        if not rank.whole
    ]
    notes += [f"rank {rank.rank}: {note}" for rank in found for note in rank.notes]
    return Compared(
        first[1] if first else None,
        dict(errors),
        sum(len(events) for events, _ in pairs),
        tuple(key for _, unmatched in pairs for key in unmatched),
        tuple(notes),
        None if first else max(nearest, key=lambda one: one.error / one.bound, default=None),
    )


Pair = tuple[OpCall, OpCall]


def _matched(reference: RankRecord, found: RankRecord) -> tuple[list[Pair], list[Key]]:
    """Return the pairs of equal events in the order of the second run, and the keys without a partner.

    Where one run has more of the same events than the other, it is not known which are the same. Those with inputs of
    other shapes may have another order: devices differ in which argument autocast casts first.
    """
    runs = [defaultdict[tuple[Any, ...], list[OpCall]](list) for _ in range(2)]
    for rank, events in zip((reference, found), runs, strict=True):
        for event in rank.events:
            events[event.key[:4]].append(event)
    partners: dict[Key, OpCall] = {}
    for same, theirs in runs[1].items():
        ours = runs[0].get(same, [])
        if len(ours) == len(theirs):
            in_order = sorted(ours, key=_shapes), sorted(theirs, key=_shapes)
            as_shaped = all(_shapes(one) == _shapes(other) for one, other in zip(*in_order, strict=True))
            pairs = zip(*(in_order if as_shaped else (ours, theirs)), strict=True)
            partners.update((other.key, one) for one, other in pairs)
    alone = [event.key for event in reference.events if event.key not in partners]
    alone += [event.key for event in found.events if event.key not in partners]
    matched = [(partners[event.key], event) for event in found.events if event.key in partners]
    return matched, list(dict.fromkeys(alone))


def _shapes(event: OpCall) -> list[tuple[tuple[int, ...], str]]:
    return [(one.shape, one.dtype) for one in event.inputs]


def _sent(pairs: Iterable[tuple[list[Pair], list[Key]]]) -> dict[tuple[int, str, int], float]:
    """Return the largest input error of each collective over all ranks; a receiver's are its senders'."""
    largest: dict[tuple[int, str, int], float] = defaultdict(float)
    for events, _ in pairs:
        for reference, found in events:
            if found.key.phase == COLLECTIVE:
                error = max(map(distance, reference.inputs, found.inputs), default=0.0)
                one = _exchange(found.key)
                largest[one] = max(largest[one], error)
    return largest


def _exchange(key: Key) -> tuple[int, str, int]:
    point_to_point = key.name in ("send", "recv")
    return (key.step, "send" if point_to_point else key.name, -1 if point_to_point else key.nth)


class _Walk:
    """Goes through the events of one rank."""

    def __init__(
        self,
        rank: int,
        factor: float,
        sent: dict[tuple[int, str, int], float],
        errors: dict[tuple[str, str], dict[int, float]],
    ) -> None:
        self._rank, self._factor, self._sent, self._errors = rank, factor, sent, errors
        self._worst = 0.0  # of all that was computed so far
        self._biases: set[Digest] = set()
        self.nearest: Difference | None = None

    def differences(self, pairs: list[Pair]) -> Iterable[tuple[int, Difference]]:
        """Yield each event that differs by more than its inputs explain."""
        results: list[float] = []
        nearest = 0.0
        last: dict[str, tuple[Digest, Digest]] = {}  # of each parameter, what its last step left in each run
        judged: set[Digest] = set()
        differentiated = -1  # the step of the last backward pass
        stepped, free = _largest_stepped(pairs), _free(pairs)
        parameters = [event for event, _ in pairs if event.key.name == PARAMETER]
        self._biases = {event.results[0] for event in parameters if event.key.where.endswith(".bias")}
        stepped_freely = {one for event in parameters if event.key.where in free for one in event.results}
        for n, (reference, found) in enumerate(pairs):
            key = found.key
            differentiated = key.step if key.phase == BACKWARD else differentiated
            floor = stepped[key.step] * _NEGLIGIBLE if key.phase == STEP or _moves(key) else 0.0
            entered = _entered(reference, found, floor, _moves(key) and key.step == differentiated)
            left = [
                distance(*one, _scale(one[0], reference))
                for one in zip(reference.results, found.results, strict=False)
            ]
            before = pairs[n - 1][1].key if n else None
            reached = max(self._worst, self._sent.get(_exchange(key), 0.0))
            if key.name == PARAMETER and key.where in free:
                left = []
            shown = key.name == PARAMETER and last.get(key.where)
            if shown and shown[0] == reference.results[0]:
                left = [distance(shown[1], found.results[0])]
            if key.phase == STEP and reference.results and found.results:
                last[key.where] = reference.results[0], found.results[0]
            if key.phase == STEP and key.where.startswith(FLATTENED) and free:
                left = [_of_samples(reference, found, n) for n in range(len(left))]
            # A parameter that nothing has written since its step is the same to the last bit.
            explained = (
                0.0 if shown else self._explained(reference, found, results[max(0, n - found.inside) :])
            )
            if key.phase == STEP:
                explained += _amplified(reference, found)
            for one in self._compared(reference, found, before, entered, left, reached, explained):
                known = one.what == "input" and (one.reference in judged or one.reference in stepped_freely)
                if not known and one.error > one.bound:
                    yield n, one
                elif not known and one.bound < _INFINITE and one.error / one.bound > nearest:
                    nearest, self.nearest = one.error / one.bound, one
            judged.update(reference.inputs, reference.results)
            largest = max(left, default=0.0)
            results.append(largest)
            # An index that jumps says nothing about the size of later errors.
            rounded = (
                error for error, one in zip(left, reference.results, strict=False) if _is_float(one.dtype)
            )
            self._worst = max(self._worst, *rounded, 0.0)
            steps = self._errors[key.phase, key.where]
            steps[key.step] = max(steps.get(key.step, 0.0), largest)

    def _compared(
        self,
        reference: OpCall,
        found: OpCall,
        before: Key | None,
        entered: list[float],
        left: list[float],
        reached: float,
        explained: float,
    ) -> Iterator[Difference]:
        """Yield each tensor of an event that differs, with its bound.

        entered, left:      errors of its inputs and results.
        reached, explained: errors that its inputs and its results may have from before.
        """
        key = found.key
        for what, errors, sides, base in (
            ("input", [] if _is_gradient(key) else entered, (reference.inputs, found.inputs), reached),
            ("result", left, (reference.results, found.results), explained),
        ):
            for number, error in enumerate(errors):
                one, other = sides[0][number], sides[1][number]
                rounding, reason = _rounding(one, reference)
                # An index or a mask may jump where its inputs differ by rounding.
                jumps = not rounding and base
                bound = _INFINITE if jumps else self._factor * (rounding + GROWTH * base)
                if error:
                    yield Difference(self._rank, key, what, number, one, other, error, bound, reason, before)

    def _explained(self, reference: OpCall, found: OpCall, inside: list[float]) -> float:
        """Return the error of what an event reads: its inputs, what is computed inside of it, and other ranks."""
        if _is_gradient(found.key) or found.key.name == PARAMETER:
            return self._worst  # it follows from everything before it
        inputs = (
            distance(one, other) * self._share(one, other, reference)
            for one, other in zip(reference.inputs, found.inputs, strict=False)
        )
        read = max([*inputs, *inside], default=0.0)
        return max(read, self._sent[_exchange(found.key)]) if found.key.phase == COLLECTIVE else read

    def _share(self, one: Digest, other: Digest, event: OpCall) -> float:
        """Return how much of an event's result an input is, at most 1; less than 1 for a bias, which is added to it.

        One that is stepped at random would otherwise explain any error of the result.
        """
        if one not in self._biases or not event.results or not event.results[0].norm:
            return 1.0
        result = event.results[0]
        norm = max(one.norm, other.norm * 1e-3)  # to which `distance` is relative
        return min(1.0, norm * math.sqrt(result.numel / one.numel) / result.norm)


def _entered(reference: OpCall, found: OpCall, floor: float, gradients: bool) -> list[float]:
    """Return the errors of what an event reads.

    floor: norm to which they are compared. gradients: whether it moves gradients; those below the floor are rounding.
    """
    return [
        0.0
        if gradients and _is_float(one.dtype) and max(one.norm, other.norm) < floor
        else distance(one, other, floor)
        for one, other in zip(reference.inputs, found.inputs, strict=False)
    ]


def _moves(key: Key) -> bool:
    """Return whether an operation moves data, as an optimizer that collects gradients of all parameters in one tensor.

    What it reads may be part of a larger tensor, next to which it is rounding, or memory that nothing has written.
    """
    return key.name.startswith(("aten.cat.", "aten.copy_."))


def _is_gradient(key: Key) -> bool:
    return key.name in (GRADIENT_OF_RESULT, GRADIENT_OF_PARAMETER)


def _free(pairs: list[Pair]) -> set[str]:
    """Return the parameters whose gradients are rounding: the bias of a key in attention, for example.

    Their true gradient is zero, and an optimizer that divides by its size steps them at random.
    """
    return {
        one.key.where
        for one, _ in pairs
        if one.key.name == GRADIENT_OF_PARAMETER
        and one.inputs
        and one.results
        and one.results[0].norm < _NEGLIGIBLE * one.inputs[0].norm
    }


def _amplified(reference: OpCall, found: OpCall) -> float:
    """Return the relative error that an optimizer makes of the rounding of its gradient.

    One that divides a gradient by its size, element by element, steps as far for elements near zero. Their rounding is
    large for them. Of gradients with the relative error e, normally distributed, the steps differ by
    about sqrt(3 e); up to sqrt(8 e) is allowed, because e is an estimate. Where an element's true gradient is zero,
    they differ by up to twice the step. The samples show how many such elements there are; 32 of them can miss some.
    """
    if len(reference.inputs) < 2 or not found.inputs or not reference.results:
        return 0.0
    if reference.inputs[0].shape != reference.results[0].shape:
        return 0.0
    (before, *_, gradient), other, after = reference.inputs, found.inputs[-1], reference.results[0]
    error = distance(gradient, other)
    if not 0 < error < 1:
        return 0.0
    steps = [b - a for a, b in zip(before.sample, after.sample, strict=True)]
    step = _root_mean_square(steps) * math.sqrt(after.numel)
    apart = [
        min(2.0, GROWTH * abs(one - same) / abs(one) if one else 2.0 * (one != same))
        for one, same in zip(gradient.sample, other.sample, strict=False)
    ]
    most = max(math.sqrt(8 * error), 4 * _root_mean_square(apart))
    # The bound multiplies what explains it by GROWTH.
    return most * step / (_scale(after, reference) or 1.0) / GROWTH


def _of_samples(reference: OpCall, found: OpCall, number: int) -> float:
    """Return the distance of a result of a step by those samples whose gradients agree.

    ZeRO steps parameters as one tensor, in which the elements of some are stepped at random.
    """
    one, other = reference.results[number], found.results[number]
    if (one.shape, one.nan, one.inf) != (other.shape, other.nan, other.inf):
        return _INFINITE
    high = max(abs(one.low), abs(one.high)) or 1.0
    gradients = reference.inputs[-1].sample, found.inputs[-1].sample
    apart = [
        abs(a - b) / high
        for a, b, *gradient in zip(one.sample, other.sample, *gradients, strict=False)
        if abs(gradient[0] - gradient[1]) <= _NEGLIGIBLE * abs(gradient[0])
    ]
    return max(apart, default=0.0)


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / max(len(values), 1))


def _largest_stepped(pairs: list[Pair]) -> dict[int, float]:
    """Return the largest norm that an optimizer reads in each step."""
    largest: dict[int, float] = defaultdict(float)
    for reference, _ in pairs:
        if reference.key.phase == STEP:
            norms = [one.norm for one in reference.inputs[-1:]]  # the gradient is the last
            largest[reference.key.step] = max([largest[reference.key.step], *norms])
    return largest


def _scale(result: Digest, event: OpCall) -> float:
    """Return the norm to which a result's error is relative.

    After a cancellation it is that of what was subtracted; a gradient's, that of the one it is computed from.
    """
    norms = [one.norm for one in event.inputs]
    if event.key.name == GRADIENT_OF_PARAMETER:
        return max([result.norm, *norms])
    if event.key.name == GRADIENT_OF_RESULT:
        return max([result.norm, *(norm * _NEGLIGIBLE for norm in norms)])
    # A derivative is linear in the gradient, its first input. Attention multiplies it by values and keys; a loss has a
    # number there, and subtracts its two other inputs.
    linear = "_backward" in event.key.name and "attention" not in event.key.name and event.inputs[0].numel > 1
    read = event.inputs[:1] if linear else event.inputs
    same = (one.norm for one in read if one.shape == result.shape and one.numel > 1)
    return max([result.norm, _summed(result, event)[0], *same])


def _summed(result: Digest, event: OpCall) -> tuple[float, int]:
    """Return the norm that the rounding of a cancelling sum is compared with, and its number of terms; else 0 and 1.

    A gradient of a bias sums gradients whose true sum may be zero, in its own operation or in that of its layer.
    """
    name = event.key.name.split(".")[1:2]
    of_bias = event.key.phase == BACKWARD and len(result.shape) == 1
    if not event.inputs or not (of_bias or name in (["sum"], ["mean"])):
        return 0.0, 1
    terms = event.inputs[0].numel // max(result.numel, 1)
    if terms < 2:
        return 0.0, 1
    return event.inputs[0].norm / (terms if name == ["mean"] else 1), terms


def distance(reference: Digest, found: Digest, scale: float = 0.0) -> float:
    """Return the estimated relative distance of two tensors; inf if they cannot be compared.

    scale: norm to which it is relative, at least the reference's.
    """
    if reference == found:
        return 0.0
    special = [(one.shape, one.nan, one.inf, one.places) for one in (reference, found)]
    if special[0] != special[1]:
        return _INFINITE
    return _distance(reference, found, scale)


@functools.lru_cache(maxsize=1 << 16)
def _distance(reference: Digest, found: Digest, scale: float) -> float:
    count = max(reference.numel, 1)
    norm = max(scale, reference.norm, found.norm * 1e-3)
    if not norm:
        return 0.0
    high = max(abs(reference.low), abs(reference.high), norm / math.sqrt(count))
    errors = [abs(reference.projection - found.projection) / norm]
    errors += [
        abs(one - other) / high
        for one, other in (
            (reference.low, found.low), (reference.high, found.high),
            *zip(reference.sample, found.sample, strict=False),
        )
        if math.isfinite(one) and math.isfinite(other)
    ]  # fmt: skip
    # Errors of rounding cancel in the norm of many elements; those of a wrong factor or a wrong direction do not.
    cancels = min(1.0, 1 / 16 + 8 / math.sqrt(count))
    errors.append(abs(reference.norm - found.norm) / norm / cancels)
    return max(errors)


def _rounding(result: Digest, event: OpCall) -> tuple[float, str]:
    """Return the relative error that rounding alone explains, and the words for it."""
    if not _is_float(result.dtype):
        return 0.0, f"{result.dtype} is exact"
    types = [one.dtype for one in (result, *event.inputs) if _is_float(one.dtype)]
    epsilon, dtype = max((_EPSILON.get(one, _FLOAT8), one) for one in types)
    if event.key.phase == STEP:
        return 16 * epsilon, f"sixteen roundings of {dtype}"
    terms = max([one.shape[-1] for one in event.inputs if one.shape] + [_summed(result, event)[1]])
    accumulated = min(epsilon, _EPSILON["float32"])
    bound = 2 * epsilon + 2 * accumulated * math.sqrt(terms)
    return bound, f"two roundings of {dtype}, and a sum of {terms} terms"


def _is_float(dtype: str) -> bool:
    return dtype in _EPSILON or dtype.startswith("float8")


def describe_nearest(difference: Difference) -> str:
    """Return the line that says how near to its bound a run without a difference came."""
    one = difference
    return (
        f"nearest to its bound: rank {one.rank}, {one.key}: relative difference {one.error:.2g}, bound {one.bound:.2g};"
        " a fault that is smaller than its bound is not seen"
    )


def describe(difference: Difference) -> list[str]:
    """Return the lines that say what differs and where."""
    key, one = difference.key, difference
    after = f"; it is computed after {one.before}" if one.before is not None else ""
    if one.what == "input":
        place = f"input {one.number} differs, and nothing recorded before explains it"
        place += after or "; the data or the initial parameters are not the same"
    elif key.phase == BACKWARD:
        place = f"the gradient differs{after or '; it is computed'}"
    elif key.phase == STEP:
        place = (
            f"the optimizer's step differs (result {one.number}), and parameter, states and gradient agree"
        )
    else:
        place = f"result {one.number} differs, and its inputs agree"
    return [
        f"rank {one.rank}, {key}: {place}",
        f"  reference: {one.reference}",
        f"  here:      {one.found}",
        f"  relative difference {one.error:.2g}, bound {one.bound:.2g}: {one.reason}",
    ]
