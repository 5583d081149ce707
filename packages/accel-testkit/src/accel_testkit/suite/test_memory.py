# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory: figures in bytes that follow what is allocated, per device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect, expect_type, factor

pytestmark = pytest.mark.tier("device")

_MIB = 1 << 20
#: Above 32 MiB glibc maps a block for itself and gives it back at once, so that the host's figures follow.
_BLOCK = 40 * _MIB
#: What a figure has to move by; the host's figures also count other memory of the process.
_SEEN = 30 * _MIB
_FIGURES = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "memory_cached",
    "max_memory_cached",
    "total_memory",
    "available_memory",
)
_RESERVES = pytest.mark.needs("reserved_memory")
_BYTES = "return bytes: callers divide and compare them"
_STATS = ("allocated_bytes.all.current", "allocated_bytes.all.peak")


def _block(accelerator: DeepSpeedAccelerator, index: int = 0) -> torch.Tensor:
    return torch.full((_BLOCK,), 1, dtype=torch.uint8, device=accelerator.device(index))


def _movement(accelerator: DeepSpeedAccelerator, figure: Callable[[], int]) -> tuple[int, int]:
    """How far a figure rises with a block, and how much of that is left without it, in bytes."""
    before = figure()
    block = _block(accelerator)
    held = figure()
    del block
    accelerator.empty_cache()
    return held - before, figure() - before


@pytest.mark.parametrize("name", _FIGURES)
def test_figure_is_a_number_of_bytes(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Every memory figure is an int of bytes, with an index and without: callers divide and compare it."""
    for value in (getattr(accelerator, name)(), getattr(accelerator, name)(0)):
        expect_type(value, int, f"{name}()", do="return bytes; 0 where the runtime knows nothing")


def test_allocated_memory_follows_tensors(accelerator: DeepSpeedAccelerator) -> None:
    """`memory_allocated` rises by what a tensor takes and falls when the tensor is gone."""
    rise, left = _movement(accelerator, accelerator.memory_allocated)
    _expect_movement("memory_allocated()", rise >= _SEEN and left < _SEEN, rise, left, "and none of it left")


@_RESERVES
def test_reserved_memory_follows_tensors(accelerator: DeepSpeedAccelerator) -> None:
    """`memory_reserved` holds every tensor, and after `empty_cache` no memory without one."""
    accelerator.empty_cache()
    rise, left = _movement(accelerator, accelerator.memory_reserved)
    _expect_movement("memory_reserved()", rise >= _SEEN and left < _SEEN, rise, left, "and none of it left")


def test_peak_stays(accelerator: DeepSpeedAccelerator) -> None:
    """`max_memory_allocated` keeps the height that `memory_allocated` had."""
    accelerator.reset_peak_memory_stats()
    rise, left = _movement(accelerator, accelerator.max_memory_allocated)
    _expect_movement("max_memory_allocated()", min(rise, left) >= _SEEN, rise, left, "and all of it left")


@_RESERVES
def test_reserved_peak_stays(accelerator: DeepSpeedAccelerator) -> None:
    """`max_memory_reserved` keeps the height that `memory_reserved` had."""
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats()
    rise, left = _movement(accelerator, accelerator.max_memory_reserved)
    _expect_movement("max_memory_reserved()", min(rise, left) >= _SEEN, rise, left, "and all of it left")


def _expect_movement(what: str, holds: bool, rise: int, left: int, then: str) -> None:
    unit = factor(rise, _BLOCK)
    expect(
        holds,
        f"{what} does not follow a tensor of {_BLOCK} bytes",
        found=f"a rise of {rise} {f'({unit})' if unit else 'bytes'}, and {left} left of it once the tensor was gone",
        expected=f"a rise of at least {_SEEN} bytes, {then}",
        do=_BYTES if unit else "ask the device's allocator at each call",
    )


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
    """After a reset the peak is what is held now."""
    block = _block(accelerator)
    del block
    accelerator.empty_cache()
    before = getattr(accelerator, peak)()
    getattr(accelerator, reset)()
    after = getattr(accelerator, peak)()
    unit = factor(before - after, _BLOCK)
    expect(
        before - after >= _SEEN,
        f"{peak}() is not in bytes" if unit else f"{reset}() does not reset {peak}()",
        found=f"{before} before, {after} after it; {unit or 'no such fall'}",
        expected=f"at least {_SEEN} less: the tensor of {_BLOCK} bytes is gone",
        do=_BYTES if unit else "reset the allocator's peaks; the old names reset the same",
    )


def test_old_names_give_the_same_figures(accelerator: DeepSpeedAccelerator) -> None:
    """`memory_cached` is `memory_reserved`, and the old peak the new one: with a tensor, and with what it leaves.

    What it leaves is asked for after a reset too: the peak of what is reserved is then no longer that of tensors.
    """

    def figures() -> list[tuple[int, int]]:
        return [
            (accelerator.memory_cached(), accelerator.memory_reserved()),
            (accelerator.max_memory_cached(), accelerator.max_memory_reserved()),
        ]

    block = _block(accelerator)
    pairs = figures()
    del block
    pairs += figures()
    accelerator.reset_peak_memory_stats()
    pairs += figures()
    expect(
        all(abs(old - new) < _MIB for old, new in pairs),
        "memory_cached() and memory_reserved() differ",
        found=repr(pairs),
        expected="equal figures under the old and the new name",
        do="call the new one in the old one",
    )


@_RESERVES
def test_asking_leaves_the_cache(accelerator: DeepSpeedAccelerator) -> None:
    """Asking for figures empties no cache and resets no peak: DeepSpeed asks between steps."""
    accelerator.empty_cache()
    block = _block(accelerator)
    del block
    before = _kept(accelerator)
    for name in _FIGURES:
        getattr(accelerator, name)()
        getattr(accelerator, name)(0)
    accelerator.memory_stats()
    after = _kept(accelerator)
    expect(
        all(now > once - _SEEN for once, now in zip(before, after, strict=True)),
        "asking for memory figures changes the allocator",
        found=f"{before[0]} bytes reserved and {before[1]} at most allocated before, {after} after it",
        expected="no less: a cache that is emptied is allocated again in the next step",
        do="ask the allocator, and change nothing",
    )


def _kept(accelerator: DeepSpeedAccelerator) -> tuple[int, int]:
    """The bytes that are reserved and the peak, by the statistics where these have them: each asks otherwise."""
    stats = accelerator.memory_stats()
    reserved = stats.get("reserved_bytes.all.current")
    peak = stats.get("allocated_bytes.all.peak")
    return (
        accelerator.memory_reserved() if reserved is None else reserved,
        accelerator.max_memory_allocated() if peak is None else peak,
    )


def test_what_is_available_is_part_of_the_total(accelerator: DeepSpeedAccelerator) -> None:
    """`0 < available_memory() <= total_memory()`."""
    total, available = accelerator.total_memory(), accelerator.available_memory()
    expect(
        0 < available <= total,
        "available and total memory contradict each other",
        found=f"{available} of {total} bytes available",
        expected="0 < available <= total",
        do="ask the runtime's mem_get_info and device properties",
    )


def test_stats_have_torch_s_keys(accelerator: DeepSpeedAccelerator) -> None:
    """`memory_stats()` is a dict with torch's keys for what is allocated now and at most."""
    stats = accelerator.memory_stats()
    missing = [key for key in _STATS if not isinstance(stats, dict) or type(stats.get(key)) is not int]
    expect(
        not missing,
        "memory_stats() lacks figures",
        found=f"no int under {', '.join(missing)} in {stats!r:.300}",
        expected=" and ".join(_STATS),
        do="translate the runtime's own keys into torch's",
    )


def test_stats_agree_with_the_figures(accelerator: DeepSpeedAccelerator) -> None:
    """`memory_stats()` tells the same as `memory_allocated()` and `max_memory_allocated()`."""
    block = _block(accelerator)
    stats = accelerator.memory_stats()
    pairs = [
        (stats[_STATS[0]], accelerator.memory_allocated()),
        (stats[_STATS[1]], accelerator.max_memory_allocated()),
    ]
    del block
    unit = factor(*pairs[0])
    expect(
        all(abs(stat - figure) < 4 * _MIB for stat, figure in pairs),
        "memory_stats() and the figures differ",
        found=f"{pairs!r}{f'; {unit}' if unit else ''}",
        expected="equal numbers of bytes",
        do="take both from the allocator",
    )


@pytest.mark.tier("multi")
@pytest.mark.needs("indexed_devices")
@pytest.mark.parametrize("name", ["memory_allocated", "max_memory_allocated", "memory_reserved"])
def test_each_device_has_its_figures(accelerator: DeepSpeedAccelerator, second: int, name: str) -> None:
    """A tensor on device 1 counts there and on no other device."""
    accelerator.empty_cache()  # a cached block would be used again, and nothing rise
    for index in (0, second):
        accelerator.reset_peak_memory_stats(index)
    figure = getattr(accelerator, name)
    before = figure(0), figure(second)
    block = _block(accelerator, second)
    rises = figure(0) - before[0], figure(second) - before[1]
    del block
    unit = factor(rises[1], _BLOCK)
    expect(
        rises[0] < _SEEN <= rises[1],
        f"{name}(i) is not in bytes" if unit else f"{name}(i) does not tell devices apart",
        found=f"a tensor of {_BLOCK} bytes on device 1 moved devices 0 and 1 by {rises}{f'; {unit}' if unit else ''}",
        expected="device 1 alone to rise, by bytes",
        do=_BYTES if unit else "pass the index on to the runtime",
    )


@pytest.mark.tier("multi")
@pytest.mark.needs("indexed_devices")
def test_peak_of_one_device_is_reset_alone(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """`reset_peak_memory_stats(1)` leaves the peak of device 0 as it is."""
    block = _block(accelerator, 0)
    del block
    before = accelerator.max_memory_allocated(0)
    accelerator.reset_peak_memory_stats(second)
    after = accelerator.max_memory_allocated(0)
    expect(
        before - after < _SEEN,
        "reset_peak_memory_stats(1) resets device 0",
        found=f"its peak was {before} and is {after}",
        expected="an untouched peak",
        do="pass the index on to the runtime",
    )
