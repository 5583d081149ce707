# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices and processes: wrong types, wrong indices, ignored arguments, contexts that are opened early."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from accel_good.accelerator import GOOD_Accelerator
from accel_good.runtime import Runtime

from accel_core.errors import InvalidEnvironment
from accel_core.vendor import Evidence
from broken import Site, breaks, broken

broken(
    "NameDropsIndexZero",
    "device.current_device_name_is_that_of_the_current_device device.device_with_an_index_keeps_it",
    device_name=lambda self, device_index=None: f"cpu:{device_index}" if device_index else "cpu",
)
broken("NotAvailable", "device.device_is_available", is_available=lambda self: False)
broken(
    "CurrentNameIsTheType",
    "device.answer_is_of_the_current_device device.current_device_can_be_set",
    current_device_name=lambda self: "cpu",
)
broken(
    "SetDeviceTakesAnyIndex",
    "device.index_out_of_range_is_refused",
    set_device=lambda self, device_index: GOOD_Accelerator.set_device(
        self, device_index if device_index in (0, 1) or not isinstance(device_index, int) else 0
    ),
)


broken(
    "SynchronizeReturnsAnEvent",
    "device.synchronize_takes_each_form",
    synchronize=lambda self, device_index=None: Runtime.Event(),
)
broken(
    "CurrentDeviceIsTheLocalRank",
    "device.variables_of_a_launcher_choose_nothing",
    current_device=lambda self: int(os.environ.get("LOCAL_RANK", GOOD_Accelerator.current_device(self))),
)


@breaks("device.set_device_counts_each_time")
class SameDeviceIsNotSetAgain(GOOD_Accelerator):
    _last: object = None

    def set_device(self, device_index: int) -> None:
        if device_index != self._last:
            super().set_device(device_index)
            self._last = device_index


# --- fresh processes: contexts that are opened early, devices that are not visible, machines without one


@breaks("processes.nothing_is_opened_before_the_first_use", started="seen")
class AskingOpensAContext(GOOD_Accelerator):
    """Its context belongs to the process that opened it."""

    _opened = 0

    def is_available(self) -> bool:
        self._opened = self._opened or os.getpid()
        return super().is_available()

    def device(self, device_index: int | None = None) -> Any:
        if self._opened not in (0, os.getpid()):
            raise RuntimeError("Cannot re-initialize the device in forked subprocess")
        return super().device(device_index)


@breaks("processes.process_has_the_devices_that_it_is_shown[one]", started="seen")
class VisibleDevicesAreIgnored(GOOD_Accelerator):
    def device_count(self) -> int:
        return 2

    def is_available(self) -> bool:
        return True


@breaks("processes.lazy_calls_come_with_the_first_use", started="seen")
class EarlyLazyCallsAreDropped(GOOD_Accelerator):
    """Its runtime is initialized by synchronize()."""

    ready = False

    def synchronize(self, device_index: int | None = None) -> None:
        super().synchronize(device_index)
        self.ready = True

    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        return callback() if self.ready else None


@breaks("processes.rank_uses_the_device_of_its_local_rank", started="seen")
class CurrentDeviceIsTheRank(GOOD_Accelerator):
    def current_device(self) -> int:
        return int(os.environ.get("RANK", super().current_device())) % 2


@breaks("processes.memory_that_is_used_first_is_not_available", started="seen")
class EverythingIsAvailableAtFirst(GOOD_Accelerator):
    def available_memory(self, device_index: int | None = None) -> int:
        return self.total_memory(device_index)


_PROBE = "processes.probe_counts_what_the_process_has"


@breaks(*(f"{_PROBE}[{name}]" for name in ("absent", "none", "one")), started="seen")
def probe_counts_all_devices(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("probe.py", "visible.count(runtime.DEVICES)", "runtime.DEVICES")


# --- what the checks of the probe notice: a variable that is said to be unset, a refusal that is not told


@breaks("probe.evidence_is_true_of_the_environment")
def variable_is_never_set(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """GOOD_VISIBLE_DEVICES, which the package names, is said to be unset even where it is."""
    said = Evidence(runtime=True, hardware=True, reason="all devices: GOOD_VISIBLE_DEVICES is not set")
    monkeypatch.setattr("accel_good.probe.evidence", lambda: said)


@breaks("probe.confirmation_tells_of_lists_that_are_refused")
class RefusalIsNotTold(GOOD_Accelerator):
    """Lists that do not ascend are refused, and confirm() does not say so of a variable that has one."""

    def set_visible_devices_envs(self, current_env: Any, local_accelerator_ids: Any) -> None:
        if list(local_accelerator_ids) == [1, 0]:
            raise InvalidEnvironment(what="no order", found="1, 0", expected="0, 1", do="sort them")
        super().set_visible_devices_envs(current_env, local_accelerator_ids)
