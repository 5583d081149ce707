# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mistakes of DeepSpeed's own backends, by their row in UPSTREAM_BUGS.md: the row's checks have to find them."""

from __future__ import annotations

from accel_good.accelerator import GOOD_Accelerator

from broken import broken

# As on mps: there is an event class, and the host's clock is used.
broken(
    "T12_EventIsNone",
    "streams.event_is_done_once_its_work_is streams.events_tell_milliseconds",
    "streams.each_event_is_its_own",
    Event=property(lambda self: None),
)
# As on mps.
broken(
    "T12_HalfTypesAreDenied",
    "answers.type_that_is_not_declared_missing_is_supported[bf16]",
    is_bf16_supported=lambda self: False,
    is_fp16_supported=lambda self: False,
)
# DeepSpeed's classes leave out what other processes use instead.
broken(
    "T26_AvailableLeavesOutTheCache",
    "answers.cached_memory_is_available",
    available_memory=lambda self, device_index=None: (
        GOOD_Accelerator.available_memory(self, device_index) - self._unused_memory(device_index)
    ),
)
# As on hpu and xpu.
broken("T28_NothingIsExported", "environment.exports_have_what_ranks_need", export_envs=lambda self: [])
