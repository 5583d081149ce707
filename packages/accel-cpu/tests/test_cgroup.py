# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory limits of control groups, versions 1 and 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from accel_cpu import cgroup

UNLIMITED_V1 = "9223372036854771712"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_version_2_limit(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/job/step"
    files = {"memory.max": "1000", "memory.current": "700", "memory.stat": "anon 500\ninactive_file 200"}
    write(
        tmp_path,
        {"proc/self/cgroup": "0::/job/step"} | {f"{group}/{name}": text for name, text in files.items()},
    )
    assert cgroup.memory(tmp_path) == cgroup.Memory(limit=1000, free=500)


def test_the_tightest_ancestor_rules(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job/step",
            "sys/fs/cgroup/job/step/memory.max": "5000",
            "sys/fs/cgroup/job/step/memory.current": "100",
            "sys/fs/cgroup/job/memory.max": "2000",
            "sys/fs/cgroup/job/memory.current": "1900",
        },
    )
    assert cgroup.memory(tmp_path) == cgroup.Memory(limit=2000, free=100)


def test_version_1_limit(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpuset:/\n4:cpu,memory:/docker/ab\n0::/",
            "sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes": "1000",
            "sys/fs/cgroup/memory/docker/ab/memory.usage_in_bytes": "900",
            "sys/fs/cgroup/memory/docker/ab/memory.stat": "inactive_file 1\ntotal_inactive_file 50",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": UNLIMITED_V1,
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "100000",
        },
    )
    assert cgroup.memory(tmp_path) == cgroup.Memory(limit=1000, free=150)


def test_a_container_s_group_is_found_though_its_name_is_from_outside(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/ab",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "400",
        },
    )
    assert cgroup.memory(tmp_path) == cgroup.Memory(limit=1000, free=600)


def test_usage_above_the_limit_leaves_nothing(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "10", "sys/fs/cgroup/memory.current": "12"},
    )
    assert cgroup.memory(tmp_path) == cgroup.Memory(limit=10, free=0)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"proc/self/cgroup": ""},
        {"proc/self/cgroup": "0::/job"},
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max", "sys/fs/cgroup/memory.current": "7"},
        {"proc/self/cgroup": "not a control group", "sys/fs/cgroup/memory.max": "7"},
    ],
    ids=["no-proc", "no-group", "no-files", "no-limit", "another-format"],
)
def test_no_limit_is_none(files: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, files)
    assert cgroup.memory(tmp_path) is None


def test_this_machine_can_be_asked() -> None:
    here = cgroup.memory()
    assert here is None or 0 <= here.free <= here.limit
