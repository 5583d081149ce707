# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices: wrong types, wrong indices, ignored arguments."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from accel_good.accelerator import GOOD_Accelerator
from accel_good.runtime import Runtime

from broken import answers, breaks

answers(
    dict.fromkeys(
        (
            "is_available",
            "is_synchronized_device",
            "use_host_timers",
            "resolves_data_dependency",
            "handles_memory_backpressure",
        ),
        1,
    ),
    "device.answer_is_yes_or_no[{}]",
)


@breaks()
class DeviceIsNone(GOOD_Accelerator):
    def device(self, device_index: int | None = None) -> Any:
        return None


@breaks()
class DeviceIsAContext(GOOD_Accelerator):
    def device(self, device_index: int | None = None) -> Any:
        return nullcontext(device_index)


@breaks("device.device_without_an_index_is_the_type")
class DeviceIsTheCurrentOne(GOOD_Accelerator):
    def device(self, device_index: int | None = None) -> torch.device:
        return super().device(self.current_device() if device_index is None else device_index)


@breaks("device.device_with_an_index_keeps_it")
class DeviceDropsTheIndex(GOOD_Accelerator):
    def device(self, device_index: int | None = None) -> torch.device:
        return torch.device("cpu")


@breaks()
class DeviceDemandsAnIndex(GOOD_Accelerator):
    def device(self, device_index: int) -> torch.device:  # type: ignore[override]
        return torch.device("cpu", device_index)


@breaks()
class NameDropsTheIndex(GOOD_Accelerator):
    def device_name(self, device_index: int | None = None) -> str:
        return "cpu"


@breaks()
class NameDropsIndexZero(GOOD_Accelerator):
    def device_name(self, device_index: int | None = None) -> str:
        return f"cpu:{device_index}" if device_index else "cpu"


@breaks("device.count_is_a_number")
class CountIsText(GOOD_Accelerator):
    def device_count(self) -> Any:
        return "2"


@breaks("device.device_is_available")
class NotAvailable(GOOD_Accelerator):
    def is_available(self) -> bool:
        return False


@breaks()
class CurrentDeviceIsText(GOOD_Accelerator):
    def current_device(self) -> Any:
        return str(super().current_device())


@breaks()
class CurrentDeviceIsADevice(GOOD_Accelerator):
    def current_device(self) -> Any:
        return torch.device("cpu", super().current_device())


@breaks()
class CurrentNameIsTheType(GOOD_Accelerator):
    def current_device_name(self) -> str:
        return "cpu"


@breaks()
class SetDeviceIsIgnored(GOOD_Accelerator):
    def set_device(self, device_index: int) -> None:
        pass


@breaks()
class SetDeviceAddsOne(GOOD_Accelerator):
    def set_device(self, device_index: int) -> None:
        super().set_device(1)


@breaks("device.index_out_of_range_is_refused")
class SetDeviceTakesAnyIndex(GOOD_Accelerator):
    def set_device(self, device_index: int) -> None:
        super().set_device(device_index if device_index in (0, 1) or not isinstance(device_index, int) else 0)


@breaks("device.current_device_can_be_set_by_name")
class SetDeviceRefusesNames(GOOD_Accelerator):
    def set_device(self, device_index: int) -> None:
        super().set_device(device_index + 0)


@breaks()
class SynchronizeTakesNoIndex(GOOD_Accelerator):
    def synchronize(self) -> None:  # type: ignore[override]
        pass


@breaks("device.synchronize_waits_for_the_device")
class SynchronizeReturnsAnEvent(GOOD_Accelerator):
    def synchronize(self, device_index: int | None = None) -> Any:
        return Runtime.Event()
