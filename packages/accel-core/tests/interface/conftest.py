# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A pretend device module with two cards, and the least that a vendor writes on it."""

from types import SimpleNamespace

import pytest

from accel_core import OpTable, TorchDeviceAccelerator


class Device:
    """As much of a device module with two cards as the tests call."""

    current = 0

    def current_device(self) -> int:
        return self.current

    def set_device(self, index: int) -> None:
        self.current = index

    def get_device_properties(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(total_memory=1000 + device)


TABLE = OpTable(
    "accel_core.op_builder",
    {
        "GoodBuilder": "toy_ops:GoodBuilder",
        "GoneBuilder": "no_such_module:X",
        "MisspeltBuilder": "no-dotted-name",
    },
)


class Toy(TorchDeviceAccelerator):
    """The least a vendor writes."""

    def visible_devices_envs(self) -> list[str]:
        return ["TOY_VISIBLE_DEVICES"]


@pytest.fixture
def toy() -> Toy:
    return Toy("meta", collectives="gloo", ops=TABLE, device_module=Device())  # type: ignore[arg-type]
