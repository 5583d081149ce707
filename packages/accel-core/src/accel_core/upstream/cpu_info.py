# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""py-cpuinfo, answered when a value is read.

DeepSpeed's CPU optimizers ask it for the CPU's maker at every construction, and it starts a process that takes seconds.
The maker is in /proc/cpuinfo, from where py-cpuinfo has it too; all else is asked of it, once a process.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from accel_core import env
from accel_core.errors import InvalidEnvironment
from accel_core.upstream import contract

_VENDOR = "vendor_id_raw"
_PROC = Path("/proc/cpuinfo")
#: Names of the field in /proc/cpuinfo, in py-cpuinfo's words.
_FIELDS = ("vendor_id", "vendor id", "vendor")


def join_cpu_info(module: ModuleType) -> None:
    """Replace `get_cpu_info` of py-cpuinfo, which has just been imported, in the modules that have it."""
    try:
        real = getattr(module, "get_cpu_info", None)
        if real is None or not env.BRIDGE.on():
            return
    except InvalidEnvironment:  # raised where it is seen: by get_accelerator()
        return
    lazy = answered_lazily(real)
    for each in (module, getattr(module, "cpuinfo", None)):
        if getattr(each, "get_cpu_info", None) is real:
            each.get_cpu_info = lazy  # type: ignore[union-attr]


def answered_lazily(real: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Return a function that answers as `real` does, and calls it when more than the CPU's maker is read."""
    lock = threading.Lock()
    answers: list[dict[str, Any]] = []

    def whole() -> dict[str, Any]:
        with lock:
            if not answers:
                answers.append(real())
        return copy.deepcopy(answers[0])

    def get_cpu_info() -> dict[str, Any]:
        """Return the CPU's properties as py-cpuinfo does, each when it is read."""
        vendor = _vendor()
        if not vendor or not contract.is_registered():
            return whole()
        return LazyInfo(vendor, whole)

    return get_cpu_info


def _vendor() -> str:
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


class LazyInfo(dict[str, Any]):
    """A dict with the CPU's maker, which fills itself when anything else is read, and before it is changed.

    Every method that sees more than one key is overridden; C code that copies a dict looks for an overridden
    `__iter__`. A copy, also a pickled one, is an ordinary dict.
    """

    def __init__(self, vendor: str, whole: Callable[[], dict[str, Any]]) -> None:
        super().__init__({_VENDOR: vendor})
        self._whole: Callable[[], dict[str, Any]] | None = whole

    def _filled(self) -> dict[str, Any]:
        if self._whole is not None:
            values = self._whole()
            self._whole = None
            super().clear()
            super().update(values)
        return self

    def __missing__(self, key: str) -> Any:
        if self._whole is None:
            raise KeyError(key)
        return self._filled()[key]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (self._whole is not None and key in self._filled())

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def __copy__(self) -> dict[str, Any]:
        return dict(self)


def _after_filling(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    def call(self: LazyInfo, *arguments: Any, **options: Any) -> Any:
        others = [each._filled() if isinstance(each, LazyInfo) else each for each in arguments]
        return method(self._filled(), *others, **options)

    call.__name__, call.__doc__ = name, method.__doc__
    return call


for _name in (
    "__iter__", "__reversed__", "__len__", "__eq__", "__ne__", "__repr__", "__or__", "__ror__", "__ior__",
    "__setitem__", "__delitem__", "keys", "values", "items", "copy", "pop", "popitem", "setdefault", "update", "clear",
):  # fmt: skip
    setattr(LazyInfo, _name, _after_filling(_name))
