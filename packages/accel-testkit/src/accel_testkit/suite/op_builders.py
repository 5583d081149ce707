# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The builders that a device has, as DeepSpeed finds them."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder import names

#: The key under which DeepSpeed 0.18 looks up builders of missing ops.
NOT_IMPLEMENTED = "deepspeed_not_implemented"


def found_by_upstream(accelerator: DeepSpeedAccelerator) -> list[str]:
    """Return builder names as DeepSpeed finds them: every name that ends in Builder, in every file of the package."""
    package = importlib.import_module(accelerator.op_builder_dir())
    found: dict[str, None] = {}
    for _, stem, _ in pkgutil.iter_modules(package.__path__):
        if stem not in ("all_ops", "builder"):
            module = importlib.import_module(f"{package.__name__}.{stem}")
            found.update(dict.fromkeys(name for name in module.__dir__() if name.endswith("Builder")))
    return sorted(found)


def is_missing(builder: Any) -> bool:
    """Return whether a builder is the placeholder of an op that the device does not have."""
    return builder is None or getattr(type(builder), "NAME", "") == NOT_IMPLEMENTED


def served(accelerator: DeepSpeedAccelerator) -> dict[str, Any]:
    """Return a builder for each op, of DeepSpeed or of the vendor, that the device has."""
    builders: dict[str, Any] = {}
    for name in sorted({*names.UPSTREAM, *found_by_upstream(accelerator)}):
        builder = accelerator.create_op_builder(name)
        if not is_missing(builder):
            builders[name] = builder
    return builders
