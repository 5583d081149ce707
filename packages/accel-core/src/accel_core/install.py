# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Commands of pip for messages, and versions of installed packages."""

from __future__ import annotations

import importlib.metadata
import re
import shlex

from accel_core.devices import DEVICES

#: True once the packages of this project are on the package index; until then `pip install accel-cpu` would fail.
ON_INDEX = False

_KERNELS = "accel-ops"  # every vendor package requires it
_METHODS = "accel-zero"  # which requires it, too; accel-cpu requires both
_SIMULATOR, _TESTKIT, _REHEARSAL = "accel-sim", "accel-testkit", "accel-rehearse"
_VENDORS = {device.distribution for device in DEVICES}
_OWN = {*_VENDORS, _KERNELS, _METHODS, _SIMULATOR, _TESTKIT, _REHEARSAL}
_OWN |= {"accel-compare", "accel-core", "accel-launch", "accel-port"}
_WHERE = " (in a checkout of accel: its packages are on no index yet)"


def pip_install(*requirements: str, options: str = "") -> str:
    """Return the command that installs these packages; it can be run as printed.

    requirements: names, with or without version ranges; other projects' packages come from the index.
    options:      options of `pip install`, such as `--upgrade`.
    """
    names = [re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0] for requirement in requirements]
    from_checkout = set() if ON_INDEX else _OWN.intersection(names)
    arguments = [
        f"./packages/{name}" if name in from_checkout else shlex.quote(requirement)
        for name, requirement in zip(names, requirements, strict=True)
    ]
    needed = {_KERNELS} if from_checkout & {*_VENDORS, _METHODS, _TESTKIT} else set()
    if "accel-cpu" in from_checkout:
        needed.add(_METHODS)
    if _REHEARSAL in from_checkout:
        needed.add(_SIMULATOR)
    arguments[:0] = [f"./packages/{name}" for name in sorted(needed) if not distribution_version(name)]
    return " ".join(["pip install", *filter(None, [options]), *arguments]) + _WHERE * bool(from_checkout)


def distribution_version(name: str) -> str | None:
    """Return the version of an installed distribution, None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
