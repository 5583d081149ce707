# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A pretend device module with two cards, and the least that a vendor writes on it."""

from types import SimpleNamespace

import pytest
import torch

from accel_core import OpTable, Support, TorchDeviceAccelerator, Trait


class Device:
    """A device module with two cards, in the shape of torch.npu."""

    Stream = torch.Stream
    Event = torch.Event

    def __init__(self) -> None:
        self.current = 0

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return self.current

    def set_device(self, index: int) -> None:
        self.current = index

    def memory_allocated(self, device: int | None = None) -> int:
        return 10 + (device or 0)

    def memory_reserved(self, device: int | None = None) -> int:
        return 30 + (device or 0)

    def memory_stats(self, device: int | None = None) -> dict[str, int]:
        return {"allocated_bytes.all.current": 10 + (device or 0)}

    def get_device_properties(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(total_memory=1000 + device)

    def mem_get_info(self, device: int | None = None) -> tuple[int, int]:
        return (500 + (device or 0), 1000)

    def is_bf16_supported(self) -> bool:
        return True


TABLE = OpTable(
    "accel_core.op_builder",
    {
        "GoodBuilder": "toy_ops:GoodBuilder",
        "GoneBuilder": "no_such_module:X",
        "MisspeltBuilder": "no-dotted-name",
    },
)


class Toy(TorchDeviceAccelerator):
    """The least a vendor writes. The tensors of these tests live on meta: any type torch knows will do."""

    def __init__(self, device: Device | None = None) -> None:
        traits = {"FusedLambBuilder": Trait(Support.UNSUPPORTED, "the card has no square roots")}
        super().__init__(
            "meta", collectives="gloo", ops=TABLE, traits=traits, device_module=device or Device()
        )  # type: ignore[arg-type]

    def visible_devices_envs(self) -> list[str]:
        return ["TOY_VISIBLE_DEVICES"]


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def toy(device: Device) -> Toy:
    return Toy(device)
