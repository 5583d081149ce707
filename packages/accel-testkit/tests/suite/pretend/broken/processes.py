# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fresh processes: contexts that are opened early, devices that are not visible, machines without one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from accel_good.accelerator import GOOD_Accelerator

from broken import Site, breaks

_FORKED = "processes.nothing_is_opened_before_the_first_use"
_ONE = "processes.process_has_the_devices_that_it_is_shown[one]"
_NONE = "processes.process_has_the_devices_that_it_is_shown"
_PROBE = "processes.probe_counts_what_the_process_has"


class _WithContext(GOOD_Accelerator):
    """Its context belongs to the process that opened it."""

    _opened = 0

    def open(self) -> None:
        self._opened = self._opened or os.getpid()

    def device(self, device_index: int | None = None) -> Any:
        if self._opened not in (0, os.getpid()):
            raise RuntimeError("Cannot re-initialize the device in forked subprocess")
        return super().device(device_index)


@breaks(_FORKED, started="seen")
class CountingOpensAContext(_WithContext):
    def device_count(self) -> int:
        self.open()
        return super().device_count()


@breaks(_FORKED, started="seen")
class AskingOpensAContext(_WithContext):
    def is_available(self) -> bool:
        self.open()
        return super().is_available()


@breaks(_FORKED, started="seen")
class ConstructionOpensAContext(_WithContext):
    def __init__(self) -> None:
        super().__init__()
        self.open()


@breaks(_ONE, started="seen")
class VisibleDevicesAreIgnored(GOOD_Accelerator):
    def device_count(self) -> int:
        return 2

    def is_available(self) -> bool:
        return True


@breaks("processes.process_has_the_devices_that_it_is_shown[turned round]", started="seen")
class SecondIdIsIgnored(GOOD_Accelerator):
    def set_visible_devices_envs(self, current_env: Any, local_accelerator_ids: Any) -> None:
        super().set_visible_devices_envs(current_env, local_accelerator_ids[:1])


@breaks(_NONE, started="seen")
class DeviceIsAlwaysAvailable(GOOD_Accelerator):
    def is_available(self) -> bool:
        return True


@breaks(_NONE, started="seen")
class ConstructionNeedsADevice(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        if not self.device_count():
            raise RuntimeError("there is no device")


_LAZY = "processes.lazy_calls_come_with_the_first_use"
_RANK = "processes.rank_uses_the_device_of_its_local_rank"
_MEMORY = "processes.memory_that_is_used_first_is_not_available"


class _Unready(GOOD_Accelerator):
    """Its runtime is initialized by synchronize()."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], Any]] = []
        self.ready = False

    def synchronize(self, device_index: int | None = None) -> None:
        super().synchronize(device_index)
        self.ready = True
        while self.waiting:
            self.waiting.pop()()


@breaks(_LAZY, started="seen")
class EarlyLazyCallsAreDropped(_Unready):
    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        return callback() if self.ready else None


@breaks(_LAZY, started="seen")
class EarlyLazyCallsAreReversed(_Unready):
    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        return callback() if self.ready else self.waiting.append(callback)


@breaks(f"{_RANK}[local rank 1]", started="seen")
class FirstSetDeviceIsIgnored(_Unready):
    def set_device(self, device_index: int) -> None:
        if self.ready:
            super().set_device(device_index)


def _rank(default: int) -> int:
    return int(os.environ.get("RANK", default)) % 2


@breaks(f"{_RANK}[local rank 0]", started="seen")
class ConstructionChoosesTheDeviceOfTheRank(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        super().set_device(_rank(0))


@breaks(_RANK, started="seen")
class CurrentDeviceIsTheRank(GOOD_Accelerator):
    def current_device(self) -> int:
        return _rank(super().current_device())


@breaks(_MEMORY, started="seen")
class EverythingIsAvailableAtFirst(GOOD_Accelerator):
    def available_memory(self, device_index: int | None = None) -> int:
        return self.total_memory(device_index)


@breaks(*(f"{_PROBE}[{name}]" for name in ("absent", "none", "one")), started="seen")
def probe_counts_all_devices(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("probe.py", "visible.count(runtime.DEVICES)", "runtime.DEVICES")


@breaks(*(f"{_PROBE}[{name}]" for name in ("absent", "all", "none")), started="seen")
def probe_counts_one_device(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("probe.py", "visible.count(runtime.DEVICES)", "1")


@breaks(_NONE, *(f"{_PROBE}[{name}]" for name in ("absent", "none")), started="seen")
def probe_raises_without_a_device(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit(
        "probe.py", "    return Confirmation(", "    visible.count(2) or 1 / 0\n    return Confirmation("
    )
