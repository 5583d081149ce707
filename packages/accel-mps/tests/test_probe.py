# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What selection learns of an Apple GPU: from the system and torch's release, then from torch.mps."""

import sys
from pathlib import Path

import pytest
import torch

from accel_core.selection import candidates
from accel_core.selection.candidates import State
from accel_mps import probe
from accel_mps.vendor import VENDOR


@pytest.fixture
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Metal, by which a Mac is known."""
    monkeypatch.setenv("ACCEL_SYSROOT", str(tmp_path))
    (tmp_path / probe.METAL).mkdir(parents=True)
    return tmp_path / probe.METAL


@pytest.mark.parametrize(
    ("platform", "metal", "version", "runtime", "hardware", "reported"),
    [
        ("linux", False, "2.13.0", False, False, "not macOS"),
        ("linux", True, "2.13.0", True, None, "on macOS"),
        ("darwin", False, "2.13.0", True, None, "on macOS"),
        ("linux", True, None, False, None, "torch is not installed"),
        ("linux", True, "2.7.1", False, None, "torch 2.7.1"),
    ],
)
def test_evidence(platform, metal, version, runtime, hardware, reported, mac, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(probe, "distribution_version", {"torch": version}.get)
    if not metal:
        mac.rmdir()
    evidence = probe.evidence()
    assert (evidence.runtime, evidence.hardware) == (runtime, hardware)
    assert reported in evidence.reason


@pytest.mark.parametrize(("available", "counted"), [(True, 1), (False, 0)])
def test_torch_s_own_answer_confirms(available, counted, monkeypatch):
    monkeypatch.setattr(torch.mps, "is_available", lambda: available)
    assert probe.confirm().devices == counted


@pytest.mark.parametrize("error", [RuntimeError, AttributeError, OSError])
def test_a_torch_that_fails_is_broken(mac, error, monkeypatch):
    def fail():
        raise error("Metal is out of order")

    monkeypatch.setattr(torch.mps, "is_available", fail)
    candidate = candidates.confirmed(candidates.of_vendor(VENDOR), VENDOR)
    assert candidate.state is State.BROKEN
    assert f"its runtime fails with {error.__name__}: Metal is out of order" in candidate.reason
