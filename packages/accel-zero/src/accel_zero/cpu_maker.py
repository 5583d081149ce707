# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Constructors of DeepSpeed's CPU optimizers get the CPU's maker from /proc/cpuinfo: py-cpuinfo takes seconds."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PROC = Path("/proc/cpuinfo")
#: The field has one of three names.
_FIELD = re.compile(r"^[ \t]*vendor(?:[_ ]id)?[ \t]*:[ \t]*(\S.*)$", re.MULTILINE | re.IGNORECASE)
#: Their constructors read the maker and nothing else.
_OPTIMIZERS = ("deepspeed.ops.adam.cpu_adam", "deepspeed.ops.lion.cpu_lion")
_NAME = "get_cpu_info"


def construct(stock: Callable[..., None], optimizer: Any, *args: Any, **kwargs: Any) -> None:
    """Construct the optimizer, which calls `cpuinfo.get_cpu_info`."""
    import cpuinfo

    for names in (vars(cpuinfo), stock.__globals__):  # 0.18 binds the function in the optimizer's module
        if _NAME in names and not hasattr(names[_NAME], "_accel_stock"):
            names[_NAME] = _answering(names[_NAME])
    stock(optimizer, *args, **kwargs)


def _answering(stock: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Return `get_cpu_info` that returns the maker alone to the optimizers, and everything to any other caller."""

    @functools.wraps(stock)
    def get_cpu_info() -> dict[str, Any]:
        caller = sys._getframe(1).f_globals.get("__name__")
        maker = _maker() if caller in _OPTIMIZERS else ""
        return {"vendor_id_raw": maker} if maker else stock()

    get_cpu_info._accel_stock = stock  # type: ignore[attr-defined]
    return get_cpu_info


def _maker() -> str:
    """Return the CPU's maker, empty where the system does not name it."""
    with contextlib.suppress(OSError):
        found = _FIELD.search(_PROC.read_text(encoding="utf-8", errors="replace"))
        return found[1].strip() if found else ""
    return ""
