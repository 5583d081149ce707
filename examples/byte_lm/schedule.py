# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""How far the run is, and the learning rate that belongs there."""

from __future__ import annotations

import math
from dataclasses import dataclass

WARMUP = 0.05
LAST_RATE = 0.05
SETTLED = 10  # steps after which the pace can be judged


@dataclass(frozen=True)
class Schedule:
    """A run of `steps`, begun or resumed at step `first`, that has `seconds` for what is left (None: no limit)."""

    steps: int
    first: int = 0
    seconds: float | None = None

    def progress(self, step: int, elapsed: float) -> float:
        """Share of the run that is behind, 0 to 1; on a machine too slow for all steps the clock decides."""
        counted = step / self.steps
        if self.seconds is None or step - self.first < SETTLED:
            return counted
        start = self.first / self.steps
        return min(max(counted, start + (1 - start) * elapsed / self.seconds), 1.0)


def rate_factor(progress: float) -> float:
    """Learning rate as a share of its peak: a linear warm-up, then a cosine down to LAST_RATE."""
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return min(progress / WARMUP, 1.0) * (LAST_RATE + (1 - LAST_RATE) * cosine)
