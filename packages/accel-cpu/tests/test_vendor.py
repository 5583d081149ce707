# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The vendor record, its probe and its entry point."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from accel_core import cascade
from accel_core.vendor import ENTRY_POINT_GROUP, INTERFACE_VERSION
from accel_cpu import probe
from accel_cpu.vendor import VENDOR

TOPOLOGIES = Path(__file__).parents[3] / "shared" / "topologies"


def test_the_record_is_found_through_the_entry_point() -> None:
    points = [point for point in metadata.entry_points(group=ENTRY_POINT_GROUP) if point.name == "cpu"]
    assert [point.load() for point in points] == [VENDOR]


def test_the_record() -> None:
    row = cascade.entries("cpu")[0]
    assert (VENDOR.key, VENDOR.priority, VENDOR.distribution) == (row.key, row.priority, row.distribution)
    assert VENDOR.interface == INTERFACE_VERSION
    assert VENDOR.version == metadata.version("accel-cpu")


def test_evidence_is_torch() -> None:
    evidence = VENDOR.evidence()
    assert (evidence.runtime, evidence.hardware) == (True, True)


def test_without_torch_there_is_no_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "module_exists", lambda name: name != "torch")
    assert VENDOR.evidence().runtime is False
    assert "torch is not installed" in VENDOR.evidence().reason


def test_evidence_and_count_import_no_torch() -> None:
    ask = (
        "import sys; from accel_cpu.vendor import VENDOR; VENDOR.evidence(); VENDOR.confirm();"
        "assert not {'torch', 'psutil', 'accel_cpu.accelerator'} & set(sys.modules), 'too much is imported'"
    )
    done = subprocess.run(
        [sys.executable, "-c", ask], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_count_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_SIZE", raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setenv("ACCEL_SYSROOT", str(TOPOLOGIES / "nps4"))
    nodes = VENDOR.confirm()
    assert (nodes.devices, nodes.reason) == (4, "NUMA nodes with usable CPUs: 4 (16 CPUs)")
    monkeypatch.setenv("LOCAL_SIZE", "2")
    ranks = VENDOR.confirm()
    assert ranks.devices == 2
    assert "launcher" in ranks.reason
