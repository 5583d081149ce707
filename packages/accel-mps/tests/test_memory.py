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


def figures(*values: int) -> dict[str, int]:
    """Present and highest bytes of tensors, then of the driver, under torch's keys."""
    kinds = ("allocated_bytes", "reserved_bytes")
    keys = [f"{kind}.all.{which}" for kind in kinds for which in ("current", "peak")]
    return dict(zip(keys, values, strict=True))


def test_peak_is_the_highest_figure_asked_for(used):
    """T11: upstream's peak is the present figure of another memory."""
    seen = PeaksAtCalls()
    assert seen.stats() == figures(100, 100, 400, 400)
    for tensors, driver in ((700, 900), (300, 1000), (200, 500)):
        used.update(tensors=tensors, driver=driver)
        stats = seen.stats()
    assert stats == figures(200, 700, 500, 1000)
    used.update(tensors=10, driver=20)
    seen.reset_peaks()
    assert seen.stats() == figures(10, 10, 20, 20)


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
