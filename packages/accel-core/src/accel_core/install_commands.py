# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""How a package is installed: the one sentence behind every message that advises `pip install`.

The packages of this project are on no index yet: `pip install accel-cpu` would find nothing there. Once they
are published, `ON_INDEX` becomes True, and that is all.
"""

from __future__ import annotations

import importlib.metadata
import re
import shlex

from accel_core import cascade

ON_INDEX = False

#: Packages of this project that are no vendor's.
_OWN = ("accel-core", "accel-host", "accel-testkit")
_KERNELS = "accel-host"
_WHERE = " (in a checkout of accel: its packages are on no index yet)"


def pip_install(*requirements: str, options: str = "") -> str:
    """Return the command that installs these packages, which works when it is followed literally.

    requirements: names, with version ranges or without; third parties' packages come from the index.
    options:      options of `pip install`, such as `--upgrade`.
    """
    own = [requirement for requirement in requirements if _is_ours(requirement)]
    if ON_INDEX or not own:
        return _command(options, [shlex.quote(requirement) for requirement in requirements])
    if any(_name(requirement) in _vendor_packages() for requirement in own) and not _installed(_KERNELS):
        requirements = (_KERNELS, *requirements)  # every vendor package requires it
    places = [
        f"./packages/{_name(requirement)}" if _is_ours(requirement) else shlex.quote(requirement)
        for requirement in requirements
    ]
    return _command(options, places) + _WHERE


def _command(options: str, arguments: list[str]) -> str:
    return " ".join(["pip install", *([options] if options else []), *arguments])


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]


def _is_ours(requirement: str) -> bool:
    return _name(requirement) in _vendor_packages() or _name(requirement) in _OWN


def _vendor_packages() -> set[str]:
    return {entry.distribution for entry in cascade.CASCADE}


def _installed(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False
