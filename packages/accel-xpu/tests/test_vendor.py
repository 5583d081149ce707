# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Three variants lead to an Intel GPU, in the order of DeepSpeed's cascade."""

from __future__ import annotations

import importlib.metadata

from accel_core import cascade
from accel_xpu import vendor


def test_each_road_is_an_entry_point_of_its_own() -> None:
    points = importlib.metadata.distribution("accel-xpu").entry_points.select(group="accel.vendors")
    records = [point.load() for point in points]
    assert {record.label for record in records} == {"xpu.external", "xpu (ipex)", "xpu (native)"}


def test_order_is_that_of_the_cascade() -> None:
    variants = [vendor.EXTERNAL, vendor.IPEX, vendor.VENDOR]
    assert [variant.priority for variant in variants] == [
        cascade.priority("xpu.external"),
        cascade.priority("xpu", "ipex"),
        cascade.priority("xpu", "native"),
    ]
    assert sorted(variants, key=lambda variant: -variant.priority) == variants


def test_native_road_is_for_machines_without_a_cuda_device() -> None:
    assert vendor.VENDOR.yields_to == ("cuda",)
    assert vendor.IPEX.yields_to == vendor.EXTERNAL.yields_to == ()


def test_intel_s_own_class_derives_from_deepspeed_s() -> None:
    assert vendor.EXTERNAL.imports_deepspeed
    assert not vendor.IPEX.imports_deepspeed
