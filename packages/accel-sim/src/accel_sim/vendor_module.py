# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fill a vendor's module from its surface: exactly the real one's names; those not simulated raise NotSimulated."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, NoReturn

from accel_sim import signatures
from accel_sim.errors import raise_not_simulated
from accel_sim.surface import Name, Surface


class _Absent:
    """A value that only the real runtime has."""

    not_simulated = True

    def __init__(self, full: str) -> None:
        self._full = full

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise_not_simulated(f"{self._full}.{name}")

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise_not_simulated(self._full)

    def __repr__(self) -> str:
        return f"<{self._full}: not simulated>"


def _function(full: str) -> Any:
    def absent(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise_not_simulated(full)

    absent.__name__ = absent.__qualname__ = full.rpartition(".")[2]
    absent.not_simulated = True  # type: ignore[attr-defined]
    return absent


def _class(full: str, methods: Iterable[str], simulated: Mapping[str, Any]) -> type:
    def absent(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise_not_simulated(full)

    members = {name: staticmethod(simulated.get(name, _function(f"{full}.{name}"))) for name in methods}
    outside, _, name = full.rpartition(".")
    return type(name, (), {**members, "__init__": absent, "__module__": outside, "not_simulated": True})


def holds(condition: str) -> bool:
    """Return whether a name that exists under a condition exists here."""
    if condition.startswith("never"):
        return False
    return "PT_HPU_LAZY_MODE" not in condition or os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"


def fill(
    module: ModuleType, prefix: str, surface: Surface, simulated: Mapping[str, Any], *, absent: bool = True
) -> None:
    """Add the names below a prefix of the surface to a module.

    simulated: by name below the prefix (`memory_allocated`), also used for the same name in submodules.
    absent:    whether names that are not simulated are added as functions that raise.
    """
    for name, entry in surface.children(prefix).items():
        full = f"{prefix}.{name}"
        if entry.condition and not holds(entry.condition):
            continue
        if name in simulated:
            setattr(module, name, signatures.as_real(simulated[name], entry, full))
        elif not absent:
            _inside(getattr(module, name, None), module, name, full, surface, simulated)
        elif entry.kind == "attr" and (surface.children(full) or "<module" in entry.signature):
            setattr(module, name, _submodule(module, name, full, surface, simulated))
        else:
            setattr(module, name, _refusal(full, entry, surface, simulated))


def _inside(
    found: Any, module: ModuleType, name: str, full: str, surface: Surface, simulated: Mapping[str, Any]
) -> None:
    """Fill a submodule of torch's own, and replace a class that a build for the CPU has a dummy of."""
    if isinstance(found, ModuleType) and surface.children(full):
        fill(found, full, surface, simulated, absent=False)
    elif isinstance(found, type) and any(base.__module__ == "torch._utils" for base in found.__mro__):
        setattr(module, name, _class(full, surface.children(full), {}))


def _submodule(
    parent: ModuleType, name: str, prefix: str, surface: Surface, simulated: Mapping[str, Any]
) -> ModuleType:
    module = ModuleType(f"{parent.__name__}.{name}")
    # It may have submodules of its own, and files of a stub package.
    module.__path__ = [os.path.join(folder, name) for folder in getattr(parent, "__path__", ())]
    fill(module, prefix, surface, simulated)
    sys.modules[module.__name__] = module
    return module


def _refusal(full: str, entry: Name, surface: Surface, simulated: Mapping[str, Any]) -> Any:
    if entry.kind == "class":
        return _class(full, surface.children(full), simulated)
    return _function(full) if entry.kind in ("function", "method") else _Absent(full)
