# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Changes to DeepSpeed that other packages bring: accel-ops replaces methods of ZeRO-Offload.

A package names them in the entry points of two groups:

- `accel.deepspeed_patches`: the name is a module of DeepSpeed, the value a function that gets it after its import.
- `accel.deepspeed_patch_status`: a function that returns rows (name, whether it is on, reason) without importing
  DeepSpeed, for `accel doctor`.
"""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from accel_core.upstream import contract

GROUP = "accel.deepspeed_patches"
STATUS_GROUP = "accel.deepspeed_patch_status"
_log = logging.getLogger("accel_core")


@dataclass(frozen=True)
class Status:
    """Whether a change is on, and why not."""

    name: str
    on: bool
    reason: str


def hooks() -> list[tuple[str, Callable[[ModuleType], None]]]:
    """Return (module of DeepSpeed, import hook) for each module that a package changes; several may change one."""
    return [(point.name, _hook(point)) for point in importlib.metadata.entry_points(group=GROUP)]


def _hook(point: importlib.metadata.EntryPoint) -> Callable[[ModuleType], None]:
    def patch(module: ModuleType) -> None:
        if contract.is_registered():
            try:
                point.load()(module)
            except Exception:
                _log.exception("stock DeepSpeed for %s", point.name)

    return patch


def examined() -> tuple[Status, ...]:
    """Return what a process that imports deepspeed would change."""
    points = importlib.metadata.entry_points(group=STATUS_GROUP)
    return tuple(Status(*row) for point in points for row in point.load()())
