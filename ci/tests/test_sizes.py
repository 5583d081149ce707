# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.metadata

import pytest

from ci import sizes
from ci.problem import CheckError
from ci.tests.repository import HEADER, Repository

CPU = "packages/accel-cpu/src/accel_cpu"


@pytest.fixture
def counted(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository whose page is written, beside a DeepSpeed with a class of 400 lines."""
    monkeypatch.setattr(sizes, "upstream", lambda: ("0.19.8", {"cpu": 400, "real": 300}))
    monkeypatch.setattr(sizes, "_installed", lambda: "0.19.8")
    repository.write(sizes.SHARED, HEADER + "#\n" * 98)
    for part in sizes.PARTS:
        repository.write(part)
    repository.write(f"{CPU}/accelerator.py", HEADER + "#\n" * 48)
    repository.write(f"{CPU}/roads/accelerator.py", HEADER + "#\n" * 8)
    repository.write("docs/results/sizes.md", "")
    assert sizes.main(["write"], repository.root) == 0
    return repository


def wrong(repository: Repository) -> list[str]:
    return [problem.what for problem in sizes.check(repository.root)]


def test_the_page_has_a_row_for_each_class_and_the_sums(counted: Repository) -> None:
    # vendor, probe, traits, __init__ and __about__ have 2 or 3 lines each.
    whole = 50 + 10 + 4 * 2 + 3
    text = (counted.root / "docs/results/sizes.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert rows == [
        f"| cpu | 50 | {whole} | 400 |",
        "| cpu (roads) | 10 |  |  |",
        "| `TorchDeviceAccelerator`, for all | 100 |  |  |",
        "| graphs, absent streams, single devices, for all | 6 |  |  |",
        "| together | 166 |  | 400 |",
    ]


def test_a_page_that_no_longer_agrees_is_named(counted: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(counted) == []
    counted.write(f"{CPU}/accelerator.py", HEADER + "#\n" * 58)
    stale = ["docs/results/sizes.md does not say how long the classes are"]
    assert wrong(counted) == stale
    assert sizes.main(["write"], counted.root) == 0
    monkeypatch.setattr(sizes, "upstream", lambda: ("0.19.8", {"cpu": 401}))
    assert wrong(counted) == stale


def test_another_deepspeed_is_no_reason_to_complain(
    counted: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "upstream", lambda: ("0.20.0", {"cpu": 500}))
    monkeypatch.setattr(sizes, "_installed", lambda: "0.20.0")
    assert wrong(counted) == []


def test_without_deepspeed_nothing_is_written(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(CheckError, match="pip install deepspeed"):
        sizes.write(repository.root)
    assert sizes.main(["write"], repository.root) == 2
    assert not (repository.root / "docs/results/sizes.md").exists()
