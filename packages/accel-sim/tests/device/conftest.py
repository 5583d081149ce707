# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a device does at torch level, compared with the CPU: run inside `accel sim npu -- python -m pytest`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from accel_sim import activate, settings

ALL = ("npu", "mlu", "sdaa", "supa", "hpu", "xpu", "cuda", "klxpu", "mps")
#: What some device types cannot do: the test that fails, the types, and why.
GAPS = {
    "test_nested_tensors": (
        ALL, "the simulation has dense, COO and quantized tensors only; jagged ones are dense ones",
    ),
    "test_results_are_those_of_the_cpu[_sparse_gradients]": (("hpu",), "torch has no type of sparse hpu tensors"),
    "test_attention_without_data": (
        ("sdaa",), "FakeTensorMode asks torch.sdaa.is_initialized, which no public source shows",
    ),
    "test_type_names": (("hpu", "mps"), "torch has no type strings for this device type"),
    "test_data_loader_pins": (("mps",), "torch's DataLoader pins no memory for mps"),
    "test_activation_checkpoints": (
        ("mps", "sdaa"), "torch's checkpoint asks torch.<type>._initialized; none is seen",
    ),
    "test_fully_sharded": (("sdaa",), "FSDP2 asks torch.sdaa.is_initialized, which no public source shows"),
}  # fmt: skip


@dataclass(frozen=True)
class Device:
    """The device under test. module: torch.<type>; count: devices that a process may use."""

    type: str
    module: Any
    count: int
    memory: int

    @property
    def first(self) -> torch.device:
        """Return device 0."""
        return torch.device(self.type, 0)


def same(found: torch.Tensor, expected: Any) -> None:
    """Raise AssertionError unless both are bitwise equal, on whatever device."""
    expected = torch.as_tensor(expected, dtype=found.dtype)
    if not torch.equal(found.cpu(), expected.cpu()):
        raise AssertionError(f"found {found.cpu().tolist()}, expected {expected.tolist()}")


def raises(call: Callable[[], Any], kind: Any, words: str = "") -> Exception:
    """Return the exception that the call raises; it has this type, or one of them, and these words in its text."""
    with pytest.raises(kind, match=re.escape(words) or None) as caught:
        call()
    return caught.value


@pytest.fixture(scope="session")
def device() -> Device:
    simulation = activate(settings.DEVICE.get())
    count = 1 if simulation.vendor.one_device else simulation.devices
    return Device(simulation.type, simulation.module, count, simulation.settings.memory)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect each gap of this device to fail: a gap that is closed is a failure, too."""
    for item in items:
        vendors, reason = GAPS.get(item.name, ((), ""))
        if settings.DEVICE.get() in vendors:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
