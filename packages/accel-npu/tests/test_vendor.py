# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that accel-core finds: by its entry point, in the cascade's place, with the cascade's sentence."""

from __future__ import annotations

from importlib import metadata

from accel_core import cascade
from accel_core.vendor import ENTRY_POINT_GROUP
from accel_npu.vendor import VENDOR


def test_the_entry_point_leads_to_the_record() -> None:
    points = metadata.entry_points(group=ENTRY_POINT_GROUP, name="npu")
    assert [point.load() for point in points] == [VENDOR]
    assert VENDOR.version == metadata.version("accel-npu")


def test_the_record_takes_the_cascade_s_place() -> None:
    assert (VENDOR.key, VENDOR.privateuse1, VENDOR.priority) == ("npu", "npu", cascade.priority("npu"))
    assert cascade.entries("npu")[0].sentence() == f"NPU_Accelerator requires {VENDOR.requires}"
