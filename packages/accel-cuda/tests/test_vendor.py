# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that accel-core finds: by its entry point, in the cascade's place, with the cascade's sentence."""

from __future__ import annotations

from importlib import metadata

from accel_core import cascade
from accel_core.vendor import ENTRY_POINT_GROUP
from accel_cuda.vendor import VENDOR


def test_the_entry_point_leads_to_the_record() -> None:
    points = metadata.entry_points(group=ENTRY_POINT_GROUP, name="cuda")
    assert [point.load() for point in points] == [VENDOR]
    assert VENDOR.version == metadata.version("accel-cuda")


def test_the_record_is_the_cascade_s_row() -> None:
    (row,) = cascade.entries("cuda")
    assert (VENDOR.key, VENDOR.priority) == (row.key, row.priority)
    assert VENDOR.accelerator.endswith(f":{row.class_name}")
    assert not VENDOR.privateuse1  # torch has a dispatch key for cuda
