# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory figures of the process and the machine, and limits of control groups, versions 1 and 2."""

import sys
from pathlib import Path

import psutil
import pytest

from accel_cpu import CPU_Accelerator, memory
from accel_cpu.memory import Limit

MIB = 1 << 20
#: Far below the spikes of these tests, above what the interpreter and the kernel's own rounding move.
SLACK = 24 * MIB


def spike(size: int) -> None:
    """Hold `size` bytes, all touched, and let them go."""
    block = bytearray(b"\1") * size
    del block


@pytest.mark.parametrize("index", [None, 0])
def test_figures_are_bytes_of_this_process(cpu: CPU_Accelerator, index: int | None) -> None:
    assert abs(cpu.memory_allocated(index) - psutil.Process().memory_info().rss) < SLACK
    assert MIB < cpu.available_memory(index) < cpu.total_memory(index)
    assert abs(cpu.max_mem - cpu.max_memory_allocated()) < SLACK


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="no high-water mark in this system")
def test_a_spike_between_two_calls_is_in_the_peak(cpu: CPU_Accelerator) -> None:
    if not memory.high_water():
        pytest.skip("this kernel keeps no high-water mark (VmHWM)")
    before = cpu.reset_rss()
    spike(300 * MIB)
    assert cpu.max_mem >= before + 300 * MIB - SLACK


@pytest.mark.parametrize(
    "reset", ["reset_rss", "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"]
)
def test_the_peak_begins_again_after_a_reset(cpu: CPU_Accelerator, reset: str) -> None:
    spike(300 * MIB)
    assert cpu.max_memory_allocated() > cpu.get_rss()
    getattr(cpu, reset)()
    assert cpu.max_memory_allocated() <= cpu.get_rss() + SLACK


def test_a_mark_that_can_not_be_reset_counts_only_once_it_grows(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = 1 << 45
    monkeypatch.setattr(memory, "reset_high_water", lambda: False)
    monkeypatch.setattr(memory, "high_water", lambda: mark)
    assert cpu.max_mem == 1 << 45
    cpu.reset_rss()
    assert cpu.max_mem < 1 << 45, "the mark is from before the reset"
    mark = 1 << 46
    assert cpu.max_mem == 1 << 46


def test_without_any_mark_the_peak_is_what_calls_have_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "reset_high_water", lambda: False)
    monkeypatch.setattr(memory, "high_water", lambda: 0)
    sizes = iter([100, 500, 200, 50, 60])
    monkeypatch.setattr(CPU_Accelerator, "get_rss", lambda self: next(sizes))
    cpu = CPU_Accelerator()
    assert (cpu.max_mem, cpu.max_mem) == (500, 500)
    cpu.reset_rss()
    assert cpu.max_mem == 60


def test_a_kernel_without_these_files_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "_CLEAR_REFS", tmp_path)  # a folder: reading and writing raise OSError
    monkeypatch.setattr(memory, "_STATUS", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    assert memory.reset_high_water() is False
    assert memory.high_water() == 0


@pytest.mark.parametrize("limit", [None, Limit(64 * MIB, 10 * MIB), Limit(1 << 62, 1 << 62)])
def test_a_lower_limit_of_the_control_group_rules(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch, limit: Limit | None
) -> None:
    monkeypatch.setattr(memory, "group_limit", lambda: limit)
    machine = psutil.virtual_memory().total
    assert cpu.total_memory() == (min(machine, limit.limit) if limit else machine)
    assert 0 < cpu.available_memory() <= (min(machine, limit.free) if limit else machine)


def v2(folder: str, most: str, used: str, **more: str) -> dict[str, str]:
    files = {"max": most, "current": used, **more}
    return {f"sys/fs/cgroup/{folder}/memory.{name}": text for name, text in files.items()}


def v1(folder: str, most: str, used: str, **more: str) -> dict[str, str]:
    files = {"limit_in_bytes": most, "usage_in_bytes": used, **more}
    return {f"sys/fs/cgroup/memory/{folder}/memory.{name}": text for name, text in files.items()}


#: The groups of this process, their files, and the limit.
LIMITS: dict[str, tuple[str, dict[str, str], Limit | None]] = {
    "version 2": ("0::/job/step", v2("job/step", "1000", "700", stat="anon 500\ninactive_file 200"), Limit(1000, 500)),
    "the tightest ancestor": (
        "0::/job/step", v2("job/step", "5000", "100") | v2("job", "2000", "1900"), Limit(2000, 100),
    ),
    "version 1": (
        "5:cpuset:/\n4:cpu,memory:/docker/ab\n0::/",
        v1("docker/ab", "1000", "900", stat="inactive_file 1\ntotal_inactive_file 50")
        | v1("", "9223372036854771712", "100000"),
        Limit(1000, 150),
    ),
    "a container, whose group's name is from outside": ("4:memory:/docker/ab", v1("", "1000", "400"), Limit(1000, 600)),
    "usage above the limit": ("0::/", v2("", "10", "12"), Limit(10, 0)),
    "no group": ("", {}, None),
    "no files": ("0::/job", {}, None),
    "no limit": ("0::/", v2("", "max", "7"), None),
    "another format": ("not a control group", v2("", "7", "0"), None),
}  # fmt: skip


@pytest.mark.parametrize(("groups", "files", "limit"), LIMITS.values(), ids=LIMITS)
def test_the_limit_of_a_control_group(
    groups: str, files: dict[str, str], limit: Limit | None, tmp_path: Path
) -> None:
    assert memory.group_limit(tmp_path) is None
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert memory.group_limit(tmp_path) == limit
