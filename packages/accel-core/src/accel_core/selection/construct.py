# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Construct the accelerator of the chosen vendor, and check that it is one."""

from __future__ import annotations

import importlib.metadata
import inspect
import logging
import pkgutil
from typing import Any

from accel_core import env
from accel_core.cascade import CPU_KEY
from accel_core.errors import NotAnAccelerator
from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import ENTRY_POINT_GROUP, Vendor

#: Base classes whose instances are accelerators. The upstream bridge adds DeepSpeed's own.
ACCELERATOR_BASES: list[type] = [DeepSpeedAccelerator]

_log = logging.getLogger("accel_core")
#: Number of missing methods that an error message lists.
_NAMED = 5


def construct(vendor: Vendor) -> Any:
    """Return a new accelerator of a vendor. Raises NotAnAccelerator, or what its import or constructor raises."""
    cls = pkgutil.resolve_name(vendor.accelerator)
    refuse_missing_methods(cls, vendor.accelerator)
    accelerator = validated(cls())
    if untested := _untested(vendor):
        level = logging.WARNING if env.is_local_rank_zero() else logging.DEBUG
        _log.log(level, "%s. If something fails that the device can do, try a tested release.", untested)
    return accelerator


def _untested(vendor: Vendor) -> str:
    """Return what a user has to know about the release of the runtime; empty if nothing."""
    try:
        return vendor.evidence().untested
    except Exception:
        return ""  # a chosen vendor whose probe fails was asked for: the selection has said so


def refuse_missing_methods(cls: Any, name: str) -> None:
    """Raise NotAnAccelerator, with the names of all abstract methods, if a class does not implement them."""
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if inspect.isclass(cls) and missing:
        raise NotAnAccelerator(
            what=f"{name} cannot be instantiated",
            found=f"{len(missing)} {'method is' if len(missing) == 1 else 'methods are'} missing: {', '.join(missing)}",
            expected="every abstract method of the accelerator interface",
            do="use a release of that package made for this accel-core and deepspeed",
        )


def validated(accelerator: Any) -> Any:
    """Return the object if it is an accelerator; else raise NotAnAccelerator with the missing methods."""
    if isinstance(accelerator, tuple(ACCELERATOR_BASES)):
        return accelerator
    missing = sorted(
        (name for name in DeepSpeedAccelerator.__abstractmethods__ if not hasattr(accelerator, name)),
        key=str.swapcase,  # methods before tensor types
    )
    listed = ", ".join(missing[:_NAMED]) + (", …" if len(missing) > _NAMED else "")
    hint = "an instance, not the class: add ()" if inspect.isclass(accelerator) else "an accelerator object"
    raise NotAnAccelerator(
        what="set_accelerator() was given something that is not an accelerator",
        found=f"{accelerator!r} of type {type(accelerator).__name__}"
        + (
            f", without {len(missing)} methods of an accelerator ({listed})"
            if missing
            else ", which does not derive from DeepSpeedAccelerator"
        ),
        expected=f"{hint}, derived from accel_core.DeepSpeedAccelerator or deepspeed's",
        do=_instead_of(accelerator),
    )


def _instead_of(given: Any) -> str:
    """What a user gives in place of a key, a class or another object."""
    own = "; a class of your own derives from accel_core.TorchDeviceAccelerator"
    if inspect.isclass(given):
        return f"give an instance: {given.__name__}(){own}"
    if isinstance(given, str) and (instance := _instance(given)):
        by_key = (
            f"`with accel_core.using({given!r})`; or set DS_ACCELERATOR={given} before the program starts"
        )
        return f"give an instance: {instance}; or {by_key}"
    instance = _instance(CPU_KEY) or "the class that its README names"
    return f"give an instance of a vendor package's class, such as {instance}{own}"


def _instance(key: str) -> str:
    """Return the code that makes an accelerator of an installed vendor; empty if none has this key."""
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=key):
        try:
            module, _, name = point.load().accelerator.partition(":")
        except Exception:
            continue  # the doctor reports it
        return f"`from {module} import {name}`, then {name}()"
    return ""
