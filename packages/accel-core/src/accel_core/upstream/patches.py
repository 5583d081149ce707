# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Methods of DeepSpeed that other packages replace; accel-zero has such a table.

A package declares its table as an entry point::

    [project.entry-points."accel.deepspeed_patches"]
    zero = "accel_zero.table"

It has `INTERFACE`, the literal number of the interface for which the package was written; `MODULES` of DeepSpeed;
`apply(module)`, which is called after the import of each; and `examined()`, the fields of a `Status` for each
replacement. Stock methods run without such a package, and with a number that this core does not support.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from accel_core import env
from accel_core.__about__ import __version__
from accel_core.errors import in_short
from accel_core.install import pip_install
from accel_core.upstream import contract
from accel_core.vendor import SUPPORTED_INTERFACES, declaring_package

_log = logging.getLogger("accel_core")
GROUP = "accel.deepspeed_patches"


@dataclass(frozen=True)
class Status:
    """State of a replacement: on, or the reason why not. kind: the line of `accel doctor` that lists it."""

    name: str
    on: bool
    reason: str
    kind: str


@functools.cache
def tables() -> tuple[Any, ...]:
    """Return the tables that this core can use. Warn once of each package with another one."""
    found = []
    unusable: dict[str, str] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        try:
            table = point.load()
            if (interface := getattr(table, "INTERFACE", None)) not in SUPPORTED_INTERFACES:
                raise ImportError(f"{point.value} has interface {interface}")
            found.append(table)
        except Exception as error:
            unusable.setdefault(" ".join(declaring_package(point)), in_short(error))
    for package, reason in unusable.items():
        if env.is_local_rank_zero():
            _log.warning(
                "stock methods of DeepSpeed run instead of those of %s: %s; accel-core %s supports interface %s. "
                "Upgrade both: %s",
                package,
                reason,
                __version__,
                " or ".join(map(str, SUPPORTED_INTERFACES)),
                pip_install("accel-core", package.partition(" ")[0], options="--upgrade"),
            )
    return tuple(found)


def package_hooks() -> list[tuple[str, Callable[[ModuleType], None]]]:
    """Return (module of DeepSpeed, import hook) for each module that a package changes; several may change one."""
    return [(name, functools.partial(_apply, table)) for table in tables() for name in table.MODULES]


def _apply(table: Any, module: ModuleType) -> None:
    if contract.is_registered():
        try:
            table.apply(module)
        except Exception:
            _log.exception("stock DeepSpeed for %s", module.__name__)


def examined() -> tuple[Status, ...]:
    """Return what a process that imports deepspeed would replace."""
    return tuple(Status(*row) for table in tables() for row in table.examined())
