# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Figures of torch before 2.13, which reports what is in use and keeps no peaks."""

import pytest
import torch

from accel_mps import memory, traits
from accel_mps.memory import PeaksAtCalls


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes that torch.mps reports: by tensors, and by the driver."""
    figures = {"tensors": 100, "driver": 400}
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: figures["tensors"])
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: figures["driver"])
    return figures


def test_figures_have_torch_s_keys(used):
    assert PeaksAtCalls().stats() == {
        "allocated_bytes.all.current": 100,
        "allocated_bytes.all.peak": 100,
        "reserved_bytes.all.current": 400,
        "reserved_bytes.all.peak": 400,
    }


def test_the_highest_figure_that_was_asked_for_is_the_peak(used):
    """T11: upstream's peak is the present figure of another memory."""
    seen = PeaksAtCalls()
    for tensors, driver in ((700, 900), (300, 1000), (200, 500)):
        used.update(tensors=tensors, driver=driver)
        stats = seen.stats()
    assert (stats["allocated_bytes.all.current"], stats["allocated_bytes.all.peak"]) == (200, 700)
    assert (stats["reserved_bytes.all.current"], stats["reserved_bytes.all.peak"]) == (500, 1000)


def test_a_reset_begins_with_the_present_figures(used):
    seen = PeaksAtCalls()
    seen.stats()
    used.update(tensors=10, driver=20)
    seen.reset_peaks()
    stats = seen.stats()
    assert (stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]) == (10, 20)


@pytest.mark.parametrize(
    ("version", "keeps"), [("2.5.1", False), ("2.12.1", False), ("2.13.0", True), ("3.0.0", True)]
)
def test_torch_keeps_peaks_from_2_13_on(version, keeps, monkeypatch):
    monkeypatch.setattr(torch, "__version__", version)
    assert memory.allocator_keeps_peaks() is keeps


def test_what_this_machine_lacks_is_declared():
    here = {"bf16", "memory_peaks"}
    assert not here & traits.of_machine(bf16=True, peaks=True).keys()
    assert here <= traits.of_machine(bf16=False, peaks=False).keys()
