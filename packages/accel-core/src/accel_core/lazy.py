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

_CORE = "accel_core"


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package, from {name: submodule that has it}; it raises AttributeError for others.

    Where the submodule asks core for a name that core lacks, it raises InterfaceMismatch (an ImportError).
    """

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        except ImportError as error:
            if _lacks_a_name(error):
                raise _newer_core_needed(package, error) from error
            raise
        setattr(sys.modules[package], name, value)
        return value

    return load


def _lacks_a_name(error: ImportError) -> bool:
    # A circular import also fails to find a name, and no other release would help.
    return (error.name or "").partition(".")[0] == _CORE and "partially initialized" not in str(error)


def _newer_core_needed(package: str, error: ImportError) -> ImportError:
    from importlib.metadata import PackageNotFoundError, version

    from accel_core.errors import InterfaceMismatch
    from accel_core.install_commands import pip_install

    try:
        installed = version("accel-core")
    except PackageNotFoundError:
        installed = "of unknown version"
    return InterfaceMismatch(
        what=f"{package} needs what the installed accel-core does not have",
        found=f"{error}; accel-core {installed}",
        expected=f"a release of accel-core as new as {package} was written for",
        do=pip_install("accel-core", options="--upgrade"),
    )
