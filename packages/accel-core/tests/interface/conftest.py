# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A pretend device module with two cards, and the least that a vendor writes on it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accel_core import OpTable, Support, TorchDeviceAccelerator, Trait


class Device:
    """A device module with two cards, in the shape of torch.npu; it remembers what it was asked."""

    Stream = torch.Stream
    Event = torch.Event

    def __init__(self) -> None:
        self.current = 0
        self.asked: list[tuple[str, Any]] = []
        self.default_generators = (torch.Generator(), torch.Generator())
        self.peaks_reset: list[int | None] = []

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return self.current

    def set_device(self, index: int) -> None:
        self.current = index

    def synchronize(self, device: int | None = None) -> None:
        self.asked.append(("synchronize", device))

    def stream(self, stream: Any) -> nullcontext[Any]:
        return nullcontext(stream)

    def current_stream(self, device: int | None = None) -> str:
        return f"current of {device}"

    def default_stream(self, device: int | None = None) -> str:
        return f"default of {device}"

    def _lazy_call(self, callback: Callable[[], Any]) -> Any:
        return callback()

    def manual_seed(self, seed: int) -> None:
        self.default_generators[self.current].manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        for generator in self.default_generators:
            generator.manual_seed(seed)

    def initial_seed(self) -> int:
        return self.default_generators[self.current].initial_seed()

    def get_rng_state(self, device: int | None = None) -> torch.Tensor:
        return self.default_generators[self.current if device is None else device].get_state()

    def set_rng_state(self, state: torch.Tensor, device: int | None = None) -> None:
        self.default_generators[self.current if device is None else device].set_state(state)

    def empty_cache(self) -> None:
        self.asked.append(("empty_cache", None))

    def memory_allocated(self, device: int | None = None) -> int:
        return 10 + (device or 0)

    def max_memory_allocated(self, device: int | None = None) -> int:
        return 20 + (device or 0)

    def memory_reserved(self, device: int | None = None) -> int:
        return 30 + (device or 0)

    def max_memory_reserved(self, device: int | None = None) -> int:
        return 40 + (device or 0)

    def memory_stats(self, device: int | None = None) -> dict[str, int]:
        return {"allocated_bytes.all.current": 10 + (device or 0)}

    def reset_peak_memory_stats(self, device: int | None = None) -> None:
        self.peaks_reset.append(device)

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
