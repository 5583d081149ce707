# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mistakes of DeepSpeed's own backends, by their row in UPSTREAM_BUGS.md: the row's checks have to find them."""

from __future__ import annotations

from accel_good.accelerator import GOOD_Accelerator

from broken import breaks


@breaks(
    "streams.event_is_done_once_its_work_is",
    "streams.events_tell_milliseconds",
    "streams.each_event_is_its_own",
)
class T12_EventIsNone(GOOD_Accelerator):
    """As on mps: there is an event class, and the host's clock is used."""

    @property
    def Event(self) -> None:
        return None


@breaks("answers.type_that_is_not_declared_missing_is_supported[bf16]")
class T12_HalfTypesAreDenied(GOOD_Accelerator):
    """As on mps."""

    def is_bf16_supported(self) -> bool:
        return False

    def is_fp16_supported(self) -> bool:
        return False


@breaks("answers.cached_memory_is_available")
class T26_AvailableLeavesOutTheCache(GOOD_Accelerator):
    """DeepSpeed's classes leave out what other processes use instead."""

    def available_memory(self, device_index: int | None = None) -> int:
        return super().available_memory(device_index) - self._unused_memory(device_index)


@breaks("environment.exports_have_what_ranks_need", "environment.exports_have_what_ranks_need")
class T28_NothingIsExported(GOOD_Accelerator):
    """As on hpu and xpu."""

    def export_envs(self) -> list[str]:
        return []
