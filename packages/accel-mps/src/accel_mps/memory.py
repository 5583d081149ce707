# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory of the Apple GPU in bytes, from torch's allocator, or from the functions of older releases of torch."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from accel_core.vendor import in_range

_KINDS = {"allocated_bytes": "current_allocated_memory", "reserved_bytes": "driver_allocated_memory"}


class Statistics(Protocol):
    """Source of memory statistics."""

    def stats(self) -> dict[str, Any]:
        """Return statistics under torch's keys."""
        ...

    def reset_peaks(self) -> None:
        """Peaks become the present figures."""
        ...


class Allocator:
    """Statistics of torch's allocator, with peaks; torch 2.13 and later."""

    def stats(self) -> dict[str, Any]:
        """Return statistics under torch's keys; zeros before the first tensor."""
        names = (f"{kind}.all.{which}" for kind in _KINDS for which in ("current", "peak"))
        return {**dict.fromkeys(names, 0), **torch.accelerator.memory_stats()}

    def reset_peaks(self) -> None:
        """Peaks become the present figures."""
        torch.accelerator.reset_peak_memory_stats()


class PeaksAtCalls:
    """Current statistics, with the highest values at any call as peaks, because torch before 2.13 keeps none."""

    def __init__(self) -> None:
        self._peaks = dict.fromkeys(_KINDS, 0)

    def stats(self) -> dict[str, Any]:
        """Return statistics under torch's keys; updates the peaks."""
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
    """Return whether this torch keeps allocator statistics for mps."""
    return in_range(torch.__version__, ">=2.13")
