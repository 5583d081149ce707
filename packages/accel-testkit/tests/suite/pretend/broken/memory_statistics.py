# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the check of memory's statistics notices: figures of one group that do not agree."""

from __future__ import annotations

from typing import Any

from accel_good.accelerator import GOOD_Accelerator

from broken import breaks


@breaks("memory_statistics.statistics_are_whole")
class FreedBlocksAreNotCounted(GOOD_Accelerator):
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        counts = {"current": 3, "allocated": 5, "freed": 1}
        return {
            **super().memory_stats(device_index),
            **{f"allocation.all.{name}": count for name, count in counts.items()},
        }
