# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Time several calls in turns, so that what disturbs the machine disturbs all of them."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch

T = TypeVar("T")
#: Bytes that an element of the triad moves: two arrays are read, one is written, and its lines are read before.
TRIAD_BYTES = 16


def turns(
    measures: Mapping[str, Callable[[], T]], rounds: int, *, warm_up: int = 0, shuffle: bool = False
) -> dict[str, list[T]]:
    """Return what each measure returned in each round.

    warm_up: rounds before the first one that counts. shuffle: a new random order each round.
    """
    order, draw = list(measures), random.Random(0)
    found: dict[str, list[T]] = {name: [] for name in order}
    for number in range(warm_up + rounds):
        if shuffle:
            draw.shuffle(order)
        for name in order:
            value = measures[name]()
            if number >= warm_up:
                found[name].append(value)
    return found


def medians(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median of each."""
    return {name: statistics.median(values) for name, values in samples.items()}


def seconds(call: Callable[[], object]) -> float:
    """Return the elapsed seconds of a call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def warm_medians(calls: Mapping[str, Callable[[], Any]], rounds: int, size: int) -> dict[str, float]:
    """Return the median seconds of a call on `size` elements.

    Each is called once untimed before, or it would find in the caches what the one before it left there.
    """
    repeat = max(1, 20_000 // size)

    def measure(call: Callable[[], Any]) -> float:
        call()
        return seconds(lambda: [call() for _ in range(repeat)]) / repeat

    measures = {name: partial(measure, call) for name, call in calls.items()}
    return medians(turns(measures, rounds, shuffle=True))


def triad(size: int) -> Callable[[], Any]:
    """Return a call of STREAM's triad a = b + s c over `size` float32 elements, by torch on its threads."""
    a, b, c = (torch.ones(size) for _ in range(3))
    return lambda: torch.add(b, c, alpha=2.0, out=a)
