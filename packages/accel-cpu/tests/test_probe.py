# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Evidence is torch; devices are NUMA nodes, or the ranks of a launcher."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accel_cpu import probe
from accel_cpu.vendor import VENDOR
from shared.topologies import build


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


def test_the_count_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LOCAL_SIZE", raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setenv("ACCEL_SYSROOT", str(build.write("nps4", tmp_path)))
    nodes = VENDOR.confirm()
    assert (nodes.devices, nodes.reason) == (4, "NUMA nodes with usable CPUs: 4 (16 CPUs)")
    monkeypatch.setenv("LOCAL_SIZE", "2")
    ranks = VENDOR.confirm()
    assert ranks.devices == 2
    assert "launcher" in ranks.reason
