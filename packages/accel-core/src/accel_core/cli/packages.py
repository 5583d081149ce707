# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Metadata of the installed packages: who declares an entry point, and which requirements are not met."""

from __future__ import annotations

import importlib.metadata
import os
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement

from accel_core import env
from accel_core.cascade import pip_install
from accel_core.errors import InvalidEnvironment
from accel_core.upstream.contract import SUPPORTED, TRIED
from accel_core.vendor import ENTRY_POINT_GROUP, distribution_version, in_range, module_exists
from accel_core.vendor.probing import declaring_package

#: Entry points of this group are called at the end of `import torch`.
TORCH_GROUP = "torch.backends"
#: torch's own switch, and the only value for which it calls them.
AUTOLOAD, AUTOLOAD_ON = "TORCH_DEVICE_BACKEND_AUTOLOAD", "1"

_CORE = "accel-core"


@dataclass(frozen=True)
class Unmet:
    """A requirement of a package that this environment does not meet; `found` is empty if not installed."""

    package: str
    version: str
    requirement: str
    name: str
    found: str


@dataclass(frozen=True)
class DeepSpeed:
    """The installed DeepSpeed. If there is none, `version` is empty and `in_range` is None.

    tried: training with this release was tested.
    """

    version: str
    supported: str
    in_range: bool | None
    tried: bool = True


@dataclass(frozen=True)
class Bridge:
    """Whether deepspeed uses our accelerators in a program that imports torch first, and the reason.

    repair: advice, if it is off although no variable disables it.
    """

    on: bool
    reason: str
    repair: str = ""


def autoload_on() -> bool:
    """Whether torch calls its backend entry points in this environment."""
    return os.environ.get(AUTOLOAD, AUTOLOAD_ON) == AUTOLOAD_ON


def backend_package(name: str) -> tuple[str, str]:
    """Return package and version that declare a torch backend entry point; empty if none has that name."""
    points = importlib.metadata.entry_points(group=TORCH_GROUP, name=name)
    return next((declaring_package(point) for point in points), ("", ""))


def deepspeed() -> DeepSpeed:
    """Return the installed DeepSpeed, from its metadata."""
    version = distribution_version("deepspeed") or ("unknown" if module_exists("deepspeed") else "")
    if not version:
        return DeepSpeed("", str(SUPPORTED), None)
    return DeepSpeed(
        version, str(SUPPORTED), in_range(version, str(SUPPORTED)), in_range(version, str(TRIED))
    )


def bridge() -> Bridge:
    """Return whether the bridge to DeepSpeed is on, and why."""
    try:
        wanted = env.BRIDGE.on()
    except InvalidEnvironment as error:
        return Bridge(False, f"{error.what}: {error.found}", error.do)
    if not wanted:
        return Bridge(False, f"{env.BRIDGE.name}={env.BRIDGE.get()}: DeepSpeed chooses by itself")
    if not module_exists("deepspeed"):
        return Bridge(False, "there is no deepspeed to join")
    if not any(
        declaring_package(point)[0] == _CORE for point in importlib.metadata.entry_points(group=TORCH_GROUP)
    ):
        found = f"{_CORE} is installed without its entry point in group {TORCH_GROUP}"
        return Bridge(False, found, pip_install(_CORE, options="--force-reinstall"))
    if not autoload_on():
        return Bridge(
            False, f"{AUTOLOAD}={os.environ[AUTOLOAD]}: only after `import accel_core` ahead of deepspeed"
        )
    return Bridge(True, "`import torch` joins it to DeepSpeed")


def unmet() -> list[Unmet]:
    """Return unmet requirements of accel-core, the vendor packages and torch's backend extensions."""
    points = [
        point
        for group in (ENTRY_POINT_GROUP, TORCH_GROUP)
        for point in importlib.metadata.entry_points(group=group)
        if point.dist is not None
    ]
    names = {_CORE} | {declaring_package(point)[0] for point in points}
    return [lack for name in sorted(names) for lack in _unmet_by(name)]


def _unmet_by(name: str) -> list[Unmet]:
    try:
        dist = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return []
    lacks = []
    for text in dist.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        found = distribution_version(requirement.name) or ""
        if not found or not requirement.specifier.contains(found, prereleases=True):
            lacks.append(Unmet(name, dist.version, text, requirement.name, found))
    return lacks
