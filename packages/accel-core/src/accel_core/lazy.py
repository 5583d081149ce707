# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Packages whose names are loaded at first use.

A vendor package gets its `__getattr__` from here. Importing it therefore imports accel_core, which registers the
hooks for DeepSpeed. That matters if torch's autoload has not done so: a runtime that is imported before torch
(torch_npu) disables torch's entry points.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

_CORE = "accel_core"


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package, given {name: submodule that defines it}.

    It raises AttributeError for other names, and InterfaceMismatch (an ImportError) if the submodule imports a
    name that the installed accel-core does not have.
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
    # A circular import also raises ImportError for a name, and another release would not help.
    return (error.name or "").partition(".")[0] == _CORE and "partially initialized" not in str(error)


def _newer_core_needed(package: str, error: ImportError) -> ImportError:
    from accel_core.__about__ import __version__
    from accel_core.cascade import pip_install
    from accel_core.errors import InterfaceMismatch

    return InterfaceMismatch(
        what=f"{package} needs what the installed accel-core does not have",
        found=f"{error}; accel-core {__version__}",
        expected=f"a release of accel-core as new as {package} was written for",
        do=pip_install("accel-core", options="--upgrade"),
    )
