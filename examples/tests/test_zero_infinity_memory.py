# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The memory limit of the example that trains from disk: a cgroup v2 where there is one to be had, else RLIMIT_DATA."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from zero_infinity_nvme import memory

MIB = 1 << 20


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The limits that would have been set, of the kind RLIMIT_DATA: the process of the tests keeps its own."""
    found: list[int] = []

    def set_limit(kind: int, given: tuple[int, int]) -> None:
        assert kind == resource.RLIMIT_DATA
        found.append(given[0])

    monkeypatch.setattr(resource, "setrlimit", set_limit)
    return found


def tree(root: Path, own: str, **controllers: str) -> Path:
    """Files as of /proc and /sys. own: /proc/self/cgroup; controllers: of a group, `_` is the slash."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    for group, text in controllers.items():
        folder = root / "sys/fs/cgroup" / group.replace("_", "/").strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.subtree_control").write_text(f"{text}\n")
    return root / "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("own", "controllers", "parent"),
    [
        ("0::/\n", {"_": "cpu memory"}, ""),
        ("0::/user/app\n", {"_": "memory", "_user": "memory pids", "_user_app": ""}, "user"),
        ("5:cpuset:/\n0::/app\n", {"_": "memory", "_app": "memory"}, "app"),
    ],
    ids=["the root", "beside its own", "below its own"],
)
def test_the_process_moves_to_a_cgroup_with_the_limit(tmp_path, limits, own, controllers, parent) -> None:
    folder = tree(tmp_path, own, **controllers) / parent / f"zero-infinity-{os.getpid()}"
    said = memory.limit(100 * MIB, tmp_path)
    wanted = int((folder / "memory.max").read_text())
    assert 100 * MIB < wanted <= memory.peak() + 100 * MIB
    assert (folder / "cgroup.procs").read_text() == str(os.getpid())
    assert said == f"cgroup {folder.name}, {wanted // MIB} MiB"
    assert limits == []


@pytest.mark.parametrize(
    ("own", "controllers"),
    [
        ("4:memory:/job\n", {"_memory_job": "memory"}),
        ("4:memory:/job\n0::/\n", {"_": ""}),
        ("0::/far/away/job\n", {"_": "memory", "_far_away": "cpu", "_far_away_job": ""}),
        ("0::/outside/of/the/container\n", {}),
        ("", {}),
    ],
    ids=["version 1", "both versions", "another controller", "not mounted", "nothing"],
)
def test_without_such_a_cgroup_the_limit_is_that_of_data(tmp_path, limits, own, controllers) -> None:
    tree(tmp_path, own, **controllers)
    assert memory.limit(100 * MIB, tmp_path) == f"RLIMIT_DATA {limits[0] // MIB} MiB"
    assert limits[0] > 100 * MIB
    assert not list(tmp_path.rglob("zero-infinity-*"))


@pytest.mark.parametrize("refused", ["memory.max", "cgroup.procs"])
def test_a_cgroup_that_refuses_the_process_is_removed(tmp_path, limits, monkeypatch, refused) -> None:
    root = tree(tmp_path, "0::/\n", _="memory")
    written: list[str] = []

    def write(path: Path, text: str, encoding: str) -> int:
        if path.name == refused:
            raise PermissionError(path)
        written.append(path.name)  # the kernel's files do not keep the folder from being removed
        return len(text)

    monkeypatch.setattr(Path, "write_text", write)
    assert memory.limit(100 * MIB, tmp_path).startswith("RLIMIT_DATA")
    assert len(limits) == 1
    assert refused not in written
    assert os.listdir(root) == ["cgroup.subtree_control"]
