# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Interface numbers: which one this accel-core has, which it still takes, and what each changed.

A core takes packages of its own number and of the one before. Each number comes with one minor release of accel-core:
2 with 0.1, 3 with 0.2. So a package's requirement on accel-core excludes the releases that refuse it, and pip sees it.
The promise begins with release 0.1.0: until then a number may change without an adapter, so nothing takes number 1.
"""

from __future__ import annotations

import pkgutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from accel_core.vendor.record import INTERFACE_VERSION, Vendor


@dataclass(frozen=True)
class Change:
    """What came with an interface number.

    sentence: what is different for a vendor package.
    adapt:    makes a record of the number before work with this one. What else a package of that number needs is
              kept in the code: default values of new methods, old names by `deprecated_names`.
    """

    sentence: str
    adapt: Callable[[Vendor], Vendor] = lambda vendor: vendor


#: By number. A new number has an entry here for as long as core takes the number before it.
CHANGES: Mapping[int, Change] = {}


def release(number: int) -> str:
    """Return the minor release of accel-core that has this interface number, such as `0.1`."""
    return f"0.{number - 1}"


def core_requirement(number: int) -> str:
    """Return the requirement of a package that is written for this interface number.

    It admits the releases with this number and with the next, and no release that refuses the package.
    """
    return f"accel-core>={release(number)},<{release(number + 2)}"


def supported() -> tuple[int, ...]:
    """Return the interface numbers of the packages that this core takes, its own first."""
    before = INTERFACE_VERSION - 1
    return (INTERFACE_VERSION, before) if INTERFACE_VERSION in CHANGES else (INTERFACE_VERSION,)


def deprecation(number: int) -> str:
    """Return a sentence about an older number that core still takes; empty for its own."""
    if number == INTERFACE_VERSION:
        return ""
    return (
        f"it is written for interface {number}, which accel-core takes until {release(number + 2)}; "
        f"interface {INTERFACE_VERSION}: {CHANGES[INTERFACE_VERSION].sentence}"
    )


def adapted(vendor: Vendor) -> Vendor:
    """Return a record of a supported number as one that this core works with; warns if its number is the older."""
    if said := deprecation(vendor.interface):
        warnings.warn(f"{vendor.distribution}: {said}", DeprecationWarning, stacklevel=2)
        return CHANGES[INTERFACE_VERSION].adapt(vendor)
    return vendor


def deprecated_names(package: str, moved: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a public package for names that its interface number has given up.

    moved: the old names, and what each is now, as `module:name`.
    """

    def load(name: str) -> Any:
        if name not in moved:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        now = moved[name].replace(":", ".")
        warnings.warn(
            f"{package}.{name} is {now} since interface {INTERFACE_VERSION}; the old name ends with accel-core "
            f"{release(INTERFACE_VERSION + 1)}",
            DeprecationWarning,
            stacklevel=2,
        )
        return pkgutil.resolve_name(moved[name])

    return load
