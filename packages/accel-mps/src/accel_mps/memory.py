# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory of the Apple GPU in bytes: from torch's allocator, or from what older releases of torch tell."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from accel_core.vendor import in_range

_KINDS = {"allocated_bytes": "current_allocated_memory", "reserved_bytes": "driver_allocated_memory"}


class Statistics(Protocol):
    """Where the figures come from."""

    def stats(self) -> dict[str, Any]:
        """Figures under torch's keys."""
        ...

    def reset_peaks(self) -> None:
        """Peaks become the present figures."""
        ...


class Allocator:
    """The statistics that torch's allocator keeps since 2.13, peaks among them."""

    def stats(self) -> dict[str, Any]:
        """Figures under torch's keys; zeros before the first tensor."""
        names = (f"{kind}.all.{which}" for kind in _KINDS for which in ("current", "peak"))
        return {**dict.fromkeys(names, 0), **torch.accelerator.memory_stats()}

    def reset_peaks(self) -> None:
        """Peaks become the present figures."""
        torch.accelerator.reset_peak_memory_stats()


class PeaksAtCalls:
    """The figures of now, and the highest that anybody asked for: torch before 2.13 keeps no peaks for mps."""

    def __init__(self) -> None:
        self._peaks = dict.fromkeys(_KINDS, 0)

    def stats(self) -> dict[str, Any]:
        """Figures under torch's keys; asking raises the peaks."""
        stats = {}
        for kind, function in _KINDS.items():
            now = int(getattr(torch.mps, function)())
            self._peaks[kind] = max(self._peaks[kind], now)
            stats[f"{kind}.all.current"] = now
            stats[f"{kind}.all.peak"] = self._peaks[kind]
        return stats

    def reset_peaks(self) -> None:
        """Peaks become the present figures."""
        self._peaks = dict.fromkeys(_KINDS, 0)
        self.stats()


def allocator_keeps_peaks() -> bool:
    """Whether this torch counts the memory of mps as it does that of other devices."""
    return in_range(torch.__version__, ">=2.13")
