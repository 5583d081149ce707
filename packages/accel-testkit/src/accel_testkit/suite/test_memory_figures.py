# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory figures among themselves: what is reserved, held, free and at most, and what the statistics' keys mean."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Traits
from accel_testkit.suite.expect import expect

pytestmark = pytest.mark.tier("device")

_MIB = 1 << 20
#: Above 32 MiB glibc maps a block for itself and gives it back at once, so that the host's figures follow.
_BLOCK = 40 * _MIB
#: What a figure has to move by; the host's figures also count other memory of the process.
_SEEN = 30 * _MIB
_RESERVES = pytest.mark.needs("reserved_memory")
_DO = "take all figures from the one allocator, at each call"


def _block(accelerator: DeepSpeedAccelerator) -> torch.Tensor:
    place = accelerator.device(accelerator.current_device())
    return torch.full((_BLOCK,), 1, dtype=torch.uint8, device=place)


def _while_it_changes(accelerator: DeepSpeedAccelerator, look: Callable[[], str]) -> list[str]:
    """What `look` finds wrong: with a block, without it, with the cache emptied, with the peaks reset."""
    found = [look()]
    block = _block(accelerator)
    found.append(look())
    del block
    found.append(look())
    for change in (accelerator.empty_cache, accelerator.reset_peak_memory_stats):
        change()
        found.append(look())
    return [wrong for wrong in found if wrong]


def test_peak_is_no_less_than_the_present(accelerator: DeepSpeedAccelerator) -> None:
    """`memory_allocated() <= max_memory_allocated()` at any time."""

    def look() -> str:
        held, peak = accelerator.memory_allocated(), accelerator.max_memory_allocated()
        return "" if 0 <= held <= peak else f"{held} bytes allocated, {peak} at most"

    _expect_nothing(
        _while_it_changes(accelerator, look), "the peak is below what is allocated", "held <= peak"
    )


@_RESERVES
def test_what_is_reserved_holds_what_is_allocated(accelerator: DeepSpeedAccelerator) -> None:
    """`memory_allocated() <= memory_reserved() <= max_memory_reserved() <= total_memory()` at any time."""

    def look() -> str:
        figures = [
            accelerator.memory_allocated(),
            accelerator.memory_reserved(),
            accelerator.max_memory_reserved(),
            accelerator.total_memory(),
        ]
        return "" if figures == sorted(figures) else repr(figures)

    _expect_nothing(
        _while_it_changes(accelerator, look),
        "figures of reserved memory contradict each other",
        "allocated <= reserved <= reserved at most <= total",
    )


@_RESERVES
def test_peak_of_the_reserved_holds_the_peak_of_the_allocated(accelerator: DeepSpeedAccelerator) -> None:
    """`max_memory_allocated() <= max_memory_reserved()` at any time."""

    def look() -> str:
        peaks = accelerator.max_memory_allocated(), accelerator.max_memory_reserved()
        return (
            "" if peaks[0] <= peaks[1] else f"{peaks[0]} bytes allocated at most, {peaks[1]} reserved at most"
        )

    _expect_nothing(
        _while_it_changes(accelerator, look),
        "peaks contradict each other",
        "peak of allocated <= peak of reserved",
    )


@pytest.mark.needs("memory_peaks")
@pytest.mark.parametrize("reset", ["reset_peak_memory_stats", "reset_max_memory_allocated"])
def test_peak_is_the_highest_that_was_allocated(accelerator: DeepSpeedAccelerator, reset: str) -> None:
    """After a reset `max_memory_allocated()` is the most that tensors took since, whatever the allocator keeps."""
    held = [_block(accelerator) for _ in range(3)]
    held.clear()  # the allocator may keep it
    getattr(accelerator, reset)()
    highest, wrong = accelerator.memory_allocated(), []
    for blocks in (0, 1, 0):
        held[:] = [_block(accelerator) for _ in range(blocks)]
        highest = max(highest, accelerator.memory_allocated())
        peak = accelerator.max_memory_allocated()
        if not highest - _MIB <= peak < highest + _SEEN:
            wrong.append(
                f"{peak} at most with {blocks} tensors, {highest} was the highest figure of memory_allocated()"
            )
    held.clear()
    accelerator.empty_cache()
    _expect_nothing(
        wrong, f"max_memory_allocated() after {reset}() is no peak of memory_allocated()", "equal figures"
    )


def test_total_stays(accelerator: DeepSpeedAccelerator) -> None:
    """`total_memory()` is the device's: the same with a tensor and without."""
    before = accelerator.total_memory()
    block = _block(accelerator)
    held = accelerator.total_memory()
    del block
    found = {before, held, accelerator.total_memory()}
    expect(
        len(found) == 1,
        "total_memory() changes with what is allocated",
        found=f"{sorted(found)} bytes before, with and after a tensor of {_BLOCK}",
        expected="one figure: what the device has",
        do="ask for the device's properties",
    )


@_RESERVES
def test_available_memory_falls(accelerator: DeepSpeedAccelerator) -> None:
    """`available_memory()` falls by what a tensor takes, and rises when it is gone and the cache is emptied."""
    if accelerator.device(accelerator.current_device()) == torch.device("cpu"):
        return  # other processes of the host take and free memory all the time
    accelerator.empty_cache()
    before = accelerator.available_memory()
    block = _block(accelerator)
    held = accelerator.available_memory()
    del block
    accelerator.empty_cache()
    after = accelerator.available_memory()
    expect(
        before - held >= _SEEN and after - held >= _SEEN,
        "available_memory() does not follow what is allocated",
        found=f"{before}, with a tensor of {_BLOCK} bytes {held}, without it {after}",
        expected=f"a fall of at least {_SEEN} bytes, and a rise",
        do="ask the runtime's mem_get_info at each call",
    )


def test_what_is_held_is_not_available(accelerator: DeepSpeedAccelerator) -> None:
    """`available_memory()` leaves out what a tensor holds: the two are at most the total, also where nothing falls."""
    index = accelerator.current_device()
    block = _block(accelerator)
    found = [
        (accelerator.available_memory(*form), accelerator.total_memory(*form))
        for form in ((), (None,), (index,))
    ]
    del block
    expect(
        all(available + _BLOCK <= total for available, total in found),
        "available_memory() counts what a tensor holds",
        found=f"{found} bytes available and in total, with a tensor of {_BLOCK}",
        expected="at least the tensor less than the total, without an index, with None and with the current one",
        do="ask the runtime's mem_get_info at each call",
    )


#: Key of the statistics -> the method that answers the same.
_KEYS = {
    "allocated_bytes.all.current": "memory_allocated",
    "allocated_bytes.all.peak": "max_memory_allocated",
    "reserved_bytes.all.current": "memory_reserved",
    "reserved_bytes.all.peak": "max_memory_reserved",
}
#: Trait -> the part of a key that then means nothing.
_PARTS = {"reserved_memory": "reserved", "memory_peaks": "peak"}
#: Figures that the statistics do not have.
_WHOLE = ("memory_cached", "max_memory_cached", "total_memory", "available_memory")


#: What every allocator aligns to, in bytes; all take more.
_ALIGNED = 16


def test_figures_are_sums_of_aligned_blocks(accelerator: DeepSpeedAccelerator) -> None:
    """Each figure is a multiple of 16 bytes, with a tensor of one byte, too: memory comes in blocks and pages.

    An allocator that counts the single byte promises no blocks.
    """
    place = accelerator.device(accelerator.current_device())
    before = accelerator.memory_allocated()
    small = torch.ones(1, dtype=torch.uint8, device=place)
    if (accelerator.memory_allocated() - before) % _ALIGNED:
        return
    stats = accelerator.memory_stats()
    figures = {f"{name}()": getattr(accelerator, name)() for name in (*_KEYS.values(), *_WHOLE)}
    figures |= {key: stats[key] for key in _KEYS if key in stats}
    del small
    wrong = [f"{name} {figure}" for name, figure in figures.items() if figure % _ALIGNED]
    _expect_nothing(wrong, "memory figures are no sums of blocks", f"multiples of {_ALIGNED} bytes")


def test_keys_of_the_stats_mean_what_they_say(accelerator: DeepSpeedAccelerator, traits: Traits) -> None:
    """Each known key of `memory_stats()` has the figure of its method: with a tensor, and once it is gone."""
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats()
    block = _block(accelerator)
    wrong = _differing_keys(accelerator, traits, "with a tensor")
    del block
    accelerator.empty_cache()
    wrong += _differing_keys(accelerator, traits, "without it")
    _expect_nothing(wrong, "keys of memory_stats() have other figures than their methods", "the same figures")


def _differing_keys(accelerator: DeepSpeedAccelerator, traits: Traits, moment: str) -> list[str]:
    stats = accelerator.memory_stats()
    missing = [part for trait, part in _PARTS.items() if trait in traits]
    keys = [key for key in _KEYS if key in stats and not any(part in key for part in missing)]
    figures = {key: getattr(accelerator, _KEYS[key])() for key in keys}
    return [
        f"{moment} {key} {stats[key]}, {_KEYS[key]}() {figure}"
        for key, figure in figures.items()
        if abs(stats[key] - figure) >= 4 * _MIB
    ]


def test_stats_keep_their_keys(accelerator: DeepSpeedAccelerator) -> None:
    """`memory_stats()` has the same keys at any time: what is 0 is there too, since callers index it."""
    small = torch.ones(8, device=accelerator.device(accelerator.current_device()))
    keys = set(accelerator.memory_stats())

    def look() -> str:
        return ", ".join(sorted(keys ^ set(accelerator.memory_stats())))

    wrong = _while_it_changes(accelerator, look)
    del small
    wrong += _while_it_changes(accelerator, look)
    _expect_nothing(
        wrong, "memory_stats() has other keys at other times", "the same keys, with 0 where there is nothing"
    )


@pytest.mark.tier("multi")
@pytest.mark.needs("indexed_devices")
def test_stats_of_each_device_have_the_same_keys(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """`memory_stats(i)` has the same keys for a device with tensors and for one without."""
    block = _block(accelerator)
    keys = [set(accelerator.memory_stats(index)) for index in (0, second)]
    del block
    apart = sorted(keys[0] ^ keys[1])
    _expect_nothing(
        apart,
        "memory_stats() has other keys for another device",
        "the same keys, with 0 where there is nothing",
    )


def test_counters_of_the_stats_count(accelerator: DeepSpeedAccelerator) -> None:
    """What `memory_stats()` counts follows: all that was allocated, less all that was freed, is what is held."""
    before = accelerator.memory_stats()
    block = _block(accelerator)
    held = accelerator.memory_stats()
    del block
    after = accelerator.memory_stats()
    rises = {
        name: _rise(name, before, held, after) for name in ("allocation.all.current", "active.all.current")
    }
    wrong = [f"{name} moved by {moved}" for name, moved in rises.items() if moved not in (None, (1, 0))]
    for kind in ("allocated_bytes", "allocation"):
        sums = [f"{kind}.all.{part}" for part in ("allocated", "freed", "current")]
        if all(name in after for name in sums):
            made, freed, current = (after[name] for name in sums)
            if made - freed != current:
                wrong.append(f"{kind}: {made} allocated, {freed} freed, {current} held")
    _expect_nothing(
        wrong, "counters of memory_stats() do not follow a tensor", "one more with it, and none after it"
    )


def _rise(
    name: str, before: dict[str, int], held: dict[str, int], after: dict[str, int]
) -> tuple[int, int] | None:
    """How far a counter rises with a tensor, and what is left of that; None where there is no such counter."""
    if name not in before:
        return None
    return held[name] - before[name], after[name] - before[name]


def _expect_nothing(wrong: list[str], what: str, expected: str) -> None:
    expect(not wrong, what, found="; ".join(wrong), expected=expected, do=_DO)
