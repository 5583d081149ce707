# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory figures of the process and the machine."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from accel_cpu import cgroup, memory
from accel_cpu.memory import HostMemory

MIB = 1 << 20
#: Far below the spikes of these tests, above what the interpreter and the kernel's own rounding move.
SLACK = 24 * MIB


def spike(size: int) -> None:
    """Hold `size` bytes, all touched, and let them go."""
    block = bytearray(b"\1") * size
    del block


def test_rss_is_this_process_in_bytes() -> None:
    now = HostMemory().rss()
    assert type(now) is int
    assert abs(now - psutil.Process().memory_info().rss) < SLACK


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="no high-water mark in this system")
def test_a_spike_between_two_calls_is_in_the_peak() -> None:
    if not memory.high_water():
        pytest.skip("this kernel keeps no high-water mark (VmHWM)")
    host = HostMemory()
    host.reset_peak()
    before = host.rss()
    spike(300 * MIB)
    assert host.peak() >= before + 300 * MIB - SLACK


def test_the_peak_begins_again_after_a_reset() -> None:
    host = HostMemory()
    spike(300 * MIB)
    host.peak()
    host.reset_peak()
    assert host.peak() <= host.rss() + SLACK


def test_the_peak_is_never_below_the_present_size() -> None:
    host = HostMemory()
    held = bytearray(b"\1") * (64 * MIB)
    assert host.peak() >= host.rss() - SLACK
    del held


def test_a_mark_that_can_not_be_reset_counts_only_once_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = 1 << 45
    monkeypatch.setattr(memory, "reset_high_water", lambda: False)
    monkeypatch.setattr(memory, "high_water", lambda: mark)
    host = HostMemory()
    assert host.peak() == 1 << 45
    host.reset_peak()
    assert host.peak() < 1 << 45, "the mark is from before the reset"
    mark = 1 << 46
    assert host.peak() == 1 << 46


def test_without_any_mark_the_peak_is_what_calls_have_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "reset_high_water", lambda: False)
    monkeypatch.setattr(memory, "high_water", lambda: 0)
    sizes = iter([100, 500, 200, 50, 60])
    monkeypatch.setattr(HostMemory, "rss", lambda self: next(sizes))
    host = HostMemory()
    assert host.peak() == 500
    assert host.peak() == 500
    host.reset_peak()
    assert host.peak() == 60


def test_a_refused_reset_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "_CLEAR_REFS", tmp_path)  # a folder: writing raises OSError
    assert memory.reset_high_water() is False


def test_a_kernel_without_a_mark_says_zero(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "_STATUS", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    assert memory.high_water() == 0


def test_total_and_available_are_the_machine_s_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "memory", lambda: None)
    host = HostMemory()
    assert host.total() == psutil.virtual_memory().total
    assert 0 < host.available() <= host.total()


def test_a_lower_limit_of_the_control_group_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "memory", lambda: cgroup.Memory(limit=64 * MIB, free=10 * MIB))
    assert HostMemory().total() == 64 * MIB
    assert HostMemory().available() == 10 * MIB


def test_a_limit_beyond_the_machine_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "memory", lambda: cgroup.Memory(limit=1 << 62, free=1 << 62))
    assert HostMemory().total() == psutil.virtual_memory().total
    assert HostMemory().available() <= psutil.virtual_memory().total
