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
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that is no Mac."""
    monkeypatch.setenv("ACCEL_SYSROOT", str(tmp_path))
    return tmp_path


@pytest.fixture
def mac(machine: Path) -> Path:
    """A Mac."""
    (machine / probe.METAL).mkdir(parents=True)
    return machine


@pytest.fixture
def torch_is(monkeypatch: pytest.MonkeyPatch) -> object:
    """Pretend that this release of torch is installed."""
    return lambda version: monkeypatch.setattr(probe, "distribution_version", {"torch": version}.get)


def test_without_metal_there_is_no_hardware(machine):
    evidence = probe.evidence()
    assert (evidence.runtime, evidence.hardware) == (False, False)
    assert "not macOS" in evidence.reason


def test_a_mac_may_have_a_gpu(mac):
    evidence = probe.evidence()
    assert (evidence.runtime, evidence.hardware) == (True, None)


def test_a_mac_needs_no_file_to_be_known(machine, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert (probe.evidence().runtime, probe.evidence().hardware) == (True, None)


@pytest.mark.parametrize(
    ("version", "reported"), [(None, "torch is not installed"), ("2.7.1", "torch 2.7.1")]
)
def test_a_torch_that_is_missing_or_too_old_is_named(mac, torch_is, version, reported):
    torch_is(version)
    evidence = probe.evidence()
    assert not evidence.runtime
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
