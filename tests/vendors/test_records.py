# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The records that accel-core finds: one entry point for each device of its table that a package supports."""

import re
from importlib import metadata

import pytest

from accel_core.devices import DEVICES
from accel_core.vendor import ENTRY_POINT_GROUP, Vendor

RECORDS: dict[str, Vendor] = {
    point.name: point.load()
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP)
    if point.dist is not None and point.dist.name in {device.distribution for device in DEVICES}
}


def test_each_device_of_the_table_has_a_record() -> None:
    rows = {(row.key, row.variant, row.priority, row.distribution) for row in DEVICES if row.distribution}
    assert {(r.key, r.variant, r.priority, r.distribution) for r in RECORDS.values()} == rows


@pytest.mark.parametrize("name", RECORDS)
def test_record_names_the_class_and_the_version_of_its_package(name: str) -> None:
    record = RECORDS[name]
    assert record.version == metadata.version(record.distribution)
    kind = "ipex" if record.variant == "ipex" else record.key.partition(".")[0]
    assert record.accelerator.endswith(f":{kind.upper()}_Accelerator")
    assert record.imports_deepspeed == (name == "xpu.external")


@pytest.mark.parametrize("name", RECORDS)
def test_advice_names_the_release_of_torch_or_leaves_torch_alone(name: str) -> None:
    """The CPU's runtime is torch; IPEX is over, and the other variant of the same key needs none."""
    advice, torch = RECORDS[name].how_to_install(), metadata.version("torch").partition("+")[0]
    assert bool(advice) == (RECORDS[name].label not in ("cpu", "xpu (ipex)"))
    assert not re.search(r"\{\w*\}", advice)
    for command in re.findall(r"pip install[^;,()&]*", advice):
        assert f'"torch=={torch}' in command or "--no-deps" in command, command
