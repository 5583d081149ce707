# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The CPU's maker for DeepSpeed's CPU optimizers, without the process that py-cpuinfo starts for it.

They ask for it at every construction, and py-cpuinfo takes seconds. It has the maker from /proc/cpuinfo, too.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from accel_core import env
from accel_core.errors import InvalidEnvironment
from accel_core.upstream import contract

_PROC = Path("/proc/cpuinfo")
#: Names of the field in /proc/cpuinfo, in py-cpuinfo's words.
_FIELDS = ("vendor_id", "vendor id", "vendor")
#: Their constructors read the maker and nothing else.
_OPTIMIZERS = ("deepspeed.ops.adam.cpu_adam", "deepspeed.ops.lion.cpu_lion")


def patch_cpu_info(module: ModuleType) -> None:
    """Replace `get_cpu_info` of `cpuinfo`, which has just been imported: DeepSpeed's optimizers get the maker alone."""
    try:
        stock = getattr(module, "get_cpu_info", None)
        if stock is None or not env.BRIDGE.on():
            return
    except InvalidEnvironment:  # raised where it is seen: by get_accelerator()
        return

    @functools.wraps(stock)
    def get_cpu_info() -> dict[str, Any]:
        caller = sys._getframe(1).f_globals.get("__name__")
        if caller in _OPTIMIZERS and contract.is_registered() and (maker := _maker()):
            return {"vendor_id_raw": maker}
        answer: dict[str, Any] = stock()
        return answer

    module.get_cpu_info = get_cpu_info  # type: ignore[attr-defined]


def _maker() -> str:
    """Return the CPU's maker, empty where the system does not name it."""
    try:
        with _PROC.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, colon, value = line.partition(":")
                if colon and name.strip().lower() in _FIELDS and value.strip():
                    return value.strip()
    except OSError:
        pass
    return ""
