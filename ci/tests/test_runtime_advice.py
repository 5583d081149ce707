# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The advice for a missing runtime, as each vendor's record has it, never replaces the torch that is here."""

import importlib.metadata
import re

import pytest

from accel_core.vendor import ENTRY_POINT_GROUP, Vendor

_OURS = re.compile(r"accel_[a-z]+\.vendor:")
RECORDS: dict[str, Vendor] = {
    f"{record.label}": record
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    if _OURS.match(point.value)
    for record in [point.load()]
}
#: The CPU's runtime is torch; IPEX is over, and the other variant of the same key needs none.
WITHOUT = {"cpu", "xpu (ipex)"}


def test_every_vendor_has_advice() -> None:
    assert len(RECORDS) > 8
    assert {label for label, record in RECORDS.items() if not record.how_to_install()} == WITHOUT


@pytest.mark.parametrize("label", sorted(RECORDS))
def test_a_command_names_the_release_of_torch_or_leaves_torch_alone(label: str) -> None:
    advice = RECORDS[label].how_to_install()
    torch = importlib.metadata.version("torch")
    assert not re.search(r"\{\w*\}", advice)
    for command in re.findall(r"pip install[^;,()&]*", advice):
        kept = f'"torch=={torch.partition("+")[0]}' in command
        assert kept or "--no-deps" in command, command
