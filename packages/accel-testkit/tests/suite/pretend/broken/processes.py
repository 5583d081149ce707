# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fresh processes: contexts that are opened early, devices that are not visible, machines without one."""

from __future__ import annotations

import os
from typing import Any

import pytest
from accel_good.accelerator import GOOD_Accelerator

from broken import Site, breaks

_FORKED = "fresh_processes.nothing_is_opened_before_the_first_use"
_ONE = "fresh_processes.one_visible_device_is_device_0"
_NONE = "fresh_processes.process_without_a_device_says_so"
_PROBE = "fresh_processes.probe_counts_what_the_process_has"


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


@breaks(*(f"{_PROBE}[{name}]" for name in ("absent", "none", "one")), started="seen")
def probe_counts_all_devices(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("probe.py", "visible.count(runtime.DEVICES)", "runtime.DEVICES")


@breaks(*(f"{_PROBE}[{name}]" for name in ("absent", "all", "none")), started="seen")
def probe_counts_one_device(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("probe.py", "visible.count(runtime.DEVICES)", "1")


@breaks(*(f"{_PROBE}[{name}]" for name in ("absent", "none")), started="seen")
def probe_raises_without_a_device(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit(
        "probe.py", "    return Confirmation(", "    visible.count(2) or 1 / 0\n    return Confirmation("
    )
