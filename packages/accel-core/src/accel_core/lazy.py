# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Packages whose names are loaded when they are first used.

A vendor package takes its `__getattr__` from here. So importing the package, which loads nothing heavy, joins
DeepSpeed to core, also where torch's autoload did not: a runtime that is imported ahead of torch (torch_npu)
keeps torch from calling its entry points.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package, from {name: submodule that has it}; it raises AttributeError for others."""

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
