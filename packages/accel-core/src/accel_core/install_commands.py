# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The `pip install` commands that error messages print.

The packages of this project are not on the package index yet, so `pip install accel-cpu` would fail. Set
`ON_INDEX` to True once they are published; nothing else has to change.
"""

from __future__ import annotations

import importlib.metadata
import re
import shlex

from accel_core import cascade

ON_INDEX = False

#: Packages of this project that are not vendor packages.
_OWN = ("accel-core", "accel-launch", "accel-ops", "accel-testkit")
_KERNELS = "accel-ops"
_WHERE = " (in a checkout of accel: its packages are on no index yet)"


def pip_install(*requirements: str, options: str = "") -> str:
    """Return the command that installs these packages; it can be run as printed.

    requirements: names, with or without version ranges; other projects' packages come from the index.
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
