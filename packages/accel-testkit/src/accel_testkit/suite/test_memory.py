# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory: figures in bytes that follow what is allocated, agree with each other, and are of one device each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Traits
from accel_testkit.suite import needs
from accel_testkit.suite.expect import Holds, factor

pytestmark = pytest.mark.tier("device")

_MIB = 1 << 20
#: Above 32 MiB glibc maps a block for itself and gives it back at once, so that the host's figures follow.
_BLOCK = 40 * _MIB
#: What a figure has to move by; the host's figures also count other memory of the process.
_SEEN = 30 * _MIB
#: What every allocator aligns to, in bytes; all take more.
_ALIGNED = 16
_FIGURES = (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached",
    "max_memory_cached", "total_memory", "available_memory",
)  # fmt: skip
#: Key of the statistics -> the method that answers the same.
_KEYS = {
    "allocated_bytes.all.current": "memory_allocated",
    "allocated_bytes.all.peak": "max_memory_allocated",
    "reserved_bytes.all.current": "memory_reserved",
    "reserved_bytes.all.peak": "max_memory_reserved",
}
#: Trait -> the part of a key that then means nothing.
_PARTS = {"reserved_memory": "reserved", "memory_peaks": "peak"}
_RESERVES = pytest.mark.needs("reserved_memory")
_DO = "return bytes, and take all figures from the one allocator, at each call"


def _block(accelerator: DeepSpeedAccelerator, index: int | None = None) -> torch.Tensor:
    place = accelerator.device(accelerator.current_device() if index is None else index)
    return torch.full((_BLOCK,), 1, dtype=torch.uint8, device=place)


def _moments(accelerator: DeepSpeedAccelerator) -> Iterator[str]:
    """Yield while the memory changes: with a block, without it, with the cache emptied, with the peaks reset."""
    yield "at first"
    block = _block(accelerator)
    yield "with a tensor"
    del block
    yield "without it"
    for change in ("empty_cache", "reset_peak_memory_stats"):
        getattr(accelerator, change)()
        yield f"after {change}()"


@pytest.mark.parametrize("name", needs.methods(_FIGURES[:4]))
def test_figure_follows_tensors(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """A figure rises by what a tensor takes; it falls when the tensor is gone, and a peak stays."""
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats()
    figure: Callable[[], int] = getattr(accelerator, name)
    before = figure()
    block = _block(accelerator)
    rise = figure() - before
    del block
    accelerator.empty_cache()
    left = figure() - before
    holds = Holds({f"a rise of {rise} bytes for {_BLOCK} {factor(rise, _BLOCK)}": rise >= _SEEN})
    holds[f"of it, {left} left once the tensor was gone"] = (left >= _SEEN) == name.startswith("max")
    holds.expect(f"{name}() with a tensor, and without it,", _DO)


@pytest.mark.parametrize(
    ("reset", "peak"),
    [
        ("reset_peak_memory_stats", "max_memory_allocated"),
        pytest.param("reset_peak_memory_stats", "max_memory_reserved", marks=_RESERVES),
        ("reset_max_memory_allocated", "max_memory_allocated"),
        pytest.param("reset_max_memory_cached", "max_memory_cached", marks=_RESERVES),
    ],
)
@pytest.mark.needs("memory_peaks")
def test_peak_can_be_reset(accelerator: DeepSpeedAccelerator, reset: str, peak: str) -> None:
    """After a reset the peak is the most that was held since, whatever the allocator kept before."""
    held, figure = [_block(accelerator) for _ in range(3)], getattr(accelerator, peak.removeprefix("max_"))
    held.clear()
    if peak != "max_memory_allocated":
        accelerator.empty_cache()
    before, holds = getattr(accelerator, peak)(), Holds()
    getattr(accelerator, reset)()
    highest = figure()
    for blocks in (0, 1, 0):
        held[:] = [_block(accelerator) for _ in range(blocks)]
        highest, found = max(highest, figure()), getattr(accelerator, peak)()
        what = f"{found} with {blocks} tensors, {before} before the reset, {highest} held since"
        holds[f"{what} {factor(found, highest)}"] = highest - _MIB <= found < highest + _SEEN
    held.clear()
    accelerator.empty_cache()
    holds.expect(f"{peak}() after {reset}()", _DO)


def test_figures_are_in_order(accelerator: DeepSpeedAccelerator, traits: Traits) -> None:
    """Allocated memory is at most reserved memory, each at most its peak, and all at most `total_memory()`.

    `memory_cached` is `memory_reserved`, and the old peak the new one: also once they are no longer that of tensors.
    Each is a multiple of 16 bytes, unless the allocator counts a single byte: memory comes in blocks and pages.
    """
    holds, reserves, totals = Holds(), "reserved_memory" not in traits, set()
    before, place = accelerator.memory_allocated(), accelerator.device(accelerator.current_device())
    small = torch.ones(1, dtype=torch.uint8, device=place)
    aligned = (accelerator.memory_allocated() - before) % _ALIGNED == 0
    for moment in _moments(accelerator):
        figures = {name: getattr(accelerator, name)() for name in _FIGURES}
        held, peak, reserved, reserved_peak, cached, cached_peak, total, available = figures.values()
        totals.add(total)
        text = f"{moment}: {figures}"
        holds[f"{text}, 0 <= allocated <= its peak"] = 0 <= held <= peak
        if reserves:
            holds[f"{text}, allocated <= reserved <= its peak <= total"] = (
                held <= reserved <= reserved_peak <= total
            )
            holds[f"{text}, peak of the allocated <= peak of the reserved"] = peak <= reserved_peak
        holds[f"{text}, old names"] = (
            abs(cached - reserved) < _MIB and abs(cached_peak - reserved_peak) < _MIB
        )
        holds[f"{text}, 0 < available <= total"] = 0 < available <= total
        holds[f"{text}, blocks"] = not aligned or not any(each % _ALIGNED for each in figures.values())
    del small
    holds[f"total_memory() is what the device has, at any time: {totals}"] = len(totals) == 1
    holds.expect("a memory figure compared with the others", _DO)


@_RESERVES
def test_asking_leaves_the_cache(accelerator: DeepSpeedAccelerator) -> None:
    """Asking for figures empties no cache and resets no peak: DeepSpeed asks between steps."""
    accelerator.empty_cache()
    _block(accelerator)
    before = _kept(accelerator)
    for name in _FIGURES:
        getattr(accelerator, name)()
        getattr(accelerator, name)(0)
    accelerator.memory_stats()
    after, holds = _kept(accelerator), Holds()
    for what, once, now in zip(("reserved", "the peak"), before, after, strict=True):
        holds[f"bytes of {what} after it {now}, before {once}"] = now > once - _SEEN
    holds.expect("the allocator, once it was asked,", "ask it, and change nothing: a step allocates again")


def _kept(accelerator: DeepSpeedAccelerator) -> tuple[int, int]:
    """Return the bytes that are reserved and the peak, by the statistics where these have them: each asks otherwise."""
    stats = accelerator.memory_stats()
    reserved = stats.get("reserved_bytes.all.current")
    peak = stats.get("allocated_bytes.all.peak")
    return (
        accelerator.memory_reserved() if reserved is None else reserved,
        accelerator.max_memory_allocated() if peak is None else peak,
    )


@_RESERVES
def test_available_memory_falls(accelerator: DeepSpeedAccelerator) -> None:
    """`available_memory()` falls by what a tensor takes, and rises when it is gone and the cache is emptied."""
    if accelerator.device(accelerator.current_device()) == torch.device("cpu"):
        pytest.skip("other processes of the host take and free memory all the time")
    accelerator.empty_cache()
    before = accelerator.available_memory()
    block = _block(accelerator)
    held = accelerator.available_memory()
    del block
    accelerator.empty_cache()
    after = accelerator.available_memory()
    holds = Holds({f"a fall by a tensor of {_BLOCK} bytes, from {before} to {held}": before - held >= _SEEN})
    holds[f"a rise without it, to {after}"] = after - held >= _SEEN
    holds.expect("available_memory()", "ask the runtime's mem_get_info at each call")


def test_what_is_held_is_not_available(accelerator: DeepSpeedAccelerator) -> None:
    """`available_memory()` leaves out what a tensor holds: the two are at most the total, also where nothing falls."""
    block, holds = _block(accelerator), Holds()
    for form in ((), (None,), (accelerator.current_device(),)):
        available, total = accelerator.available_memory(*form), accelerator.total_memory(*form)
        holds[f"available_memory{form} {available} of {total}"] = available + _BLOCK <= total
    del block
    do = "ask the runtime's mem_get_info at each call"
    holds.expect(f"what is available with a tensor of {_BLOCK}", do)


def test_statistics_agree_with_the_figures(accelerator: DeepSpeedAccelerator, traits: Traits) -> None:
    """`memory_stats()` is a dict with torch's keys, the same at any time, each with the figure of its method.

    What is 0 is there too, since callers index it.
    """
    small = torch.ones(8, device=accelerator.device(accelerator.current_device()))
    holds, keys = Holds(), set(accelerator.memory_stats())
    nothing = [part for trait, part in _PARTS.items() if trait in traits]
    for moment in _moments(accelerator):
        stats = accelerator.memory_stats()
        holds[f"{moment} keys come or go: {keys ^ set(stats)}"] = keys == set(stats)
        # With a tensor its peak is what is held now, also where the runtime keeps none.
        alike = [key for key in _KEYS if moment == "with a tensor" and key.startswith("allocated")]
        for key, name in _KEYS.items():
            if key not in stats:
                holds[f"{moment} {key} is there"] = key.startswith("reserved")
            elif key in alike or not any(part in key for part in nothing):
                figure = getattr(accelerator, name)()
                what = f"{moment} {key} {stats[key]!r}, {name}() {figure} {factor(stats[key], figure)}"
                holds[what] = type(stats[key]) is int and abs(stats[key] - figure) < 4 * _MIB
    del small
    stats = accelerator.memory_stats()
    holds[f"keys go with the last tensor: {keys ^ set(stats)}"] = keys == set(stats)
    holds.expect("memory_stats()", f"translate the runtime's own keys into torch's; {_DO}")


#: The figures of torch's allocator; one behind the first is not there without the others.
_GROUPS = {
    "allocated_bytes.all": ("current", "peak"),
    "reserved_bytes.all": ("current", "peak"),
    "allocation.all": ("current", "allocated", "freed"),
}


def test_statistics_are_whole(accelerator: DeepSpeedAccelerator) -> None:
    """`memory_stats()` has all that the runtime's has, and of each group of torch's names all figures.

    What it counts follows: all that was allocated, less all that was freed, is what is held.
    """
    holds, before = Holds(), accelerator.memory_stats()
    block = _block(accelerator)
    held = accelerator.memory_stats()
    del block
    after = accelerator.memory_stats()
    reported = getattr(getattr(torch, accelerator.device_name(), None), "memory_stats", dict)
    lacks = sorted(set(reported()) - set(after))
    holds[f"what the runtime reports: {', '.join(lacks)}"] = not lacks
    for name in ("allocation.all.current", "active.all.current"):
        if name in before:
            moved = held[name] - before[name], after[name] - before[name]
            holds.equal(f"{name} with a tensor, and after it", moved, (1, 0))
    for stats in (held, after):
        for group, parts in _GROUPS.items():
            found: dict[str, Any] = {part: stats.get(f"{group}.{part}") for part in parts}
            there = any(found[part] is not None for part in parts[1:])
            holds[f"all of {group}: {found}"] = not there or None not in found.values()
        for group in ("allocated_bytes.all", "allocation.all"):
            found = {part: stats.get(f"{group}.{part}") for part in ("allocated", "freed", "current")}
            if None not in found.values():
                rest = found["allocated"] - found["freed"]
                holds[f"the sum of {group}: {found}"] = found["current"] == rest
    holds.expect("memory_stats()", "return the runtime's statistics, and torch's names for what they mean")
