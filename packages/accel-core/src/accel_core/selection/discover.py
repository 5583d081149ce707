# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the vendor packages: entry points of group `accel.vendors`. Imports neither torch nor any runtime."""

from __future__ import annotations

import importlib.metadata
import traceback
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from accel_core import cascade
from accel_core.declared import declaring_package
from accel_core.errors import AccelError, DuplicateVendor, InterfaceMismatch, InvalidVendor
from accel_core.install_commands import pip_install
from accel_core.selection.announce import about_to
from accel_core.selection.finding import Finding, State
from accel_core.vendor import ENTRY_POINT_GROUP, Vendor, distribution_version, interfaces


@dataclass(frozen=True)
class Discovery:
    """The usable vendors, and a finding for each entry point that cannot be used."""

    vendors: tuple[Vendor, ...]
    broken: tuple[Finding, ...]


def discover(entry_points: Iterable[importlib.metadata.EntryPoint] | None = None) -> Discovery:
    """Load all vendor records. Does not raise: a faulty package becomes a finding."""
    if entry_points is None:
        entry_points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    vendors: list[Vendor] = []
    broken: list[Finding] = []
    for point in _distinct(entry_points):
        try:
            vendor = _load(point)
        except AccelError as error:
            broken.append(_broken(point, error))
            continue
        if vendor.interface in interfaces.supported():
            vendors.append(interfaces.adapted(vendor))
        else:
            broken.append(_unusable([vendor], _mismatch(point, f"interface {vendor.interface}")))
    return _without_duplicates(vendors, broken)


def _distinct(points: Iterable[importlib.metadata.EntryPoint]) -> list[importlib.metadata.EntryPoint]:
    # An editable install beside a wheel of the same version lists its entry points twice.
    seen = {(point.name, point.value, declaring_package(point)[0]): point for point in points}
    return [seen[name] for name in sorted(seen)]


def _load(point: importlib.metadata.EntryPoint) -> Vendor:
    package, version = declaring_package(point)
    try:
        with about_to(f"import {point.value.partition(':')[0]}, the vendor record of {package}"):
            vendor = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if written_for := _older_interface(error):
            raise _mismatch(point, written_for) from error
        raise InvalidVendor(
            what=f"the vendor entry point {point.name!r} of {package} cannot be imported",
            found=f"{type(error).__name__}: {error} (from {point.value})",
            expected="an import without side effects that gives an accel_core.Vendor",
            do=f"reinstall or remove it: pip uninstall {package}",
        ) from error
    if not isinstance(vendor, Vendor):
        raise InvalidVendor(
            what=f"the vendor entry point {point.name!r} of {package} is not a vendor",
            found=f"{point.value} is a {type(vendor).__name__}",
            expected="an instance of accel_core.Vendor",
            do=f'point the entry at the record, as in `{point.name} = "package.vendor:VENDOR"`',
        )
    return replace(vendor, distribution=vendor.distribution or package, version=version or vendor.version)


def _older_interface(error: BaseException) -> str:
    """Describe the interface of a package whose record fails to load because of it; empty for other failures."""
    # The package may also import a name that only a newer core has.
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "accel_core":
        return f"an interface that has what this one lacks ({error})"
    if isinstance(error, TypeError) and "Vendor.__init__()" in str(error):
        return f"an interface whose Vendor record has other fields ({error})"
    return ""


def _mismatch(point: importlib.metadata.EntryPoint, written_for: str) -> InterfaceMismatch:
    package, version = declaring_package(point)
    needs = [
        text for text in (point.dist.requires or () if point.dist else ()) if text.startswith("accel-core")
    ]
    core = distribution_version("accel-core") or "of unknown version"
    own, *older = map(str, interfaces.supported())
    takes = f" and takes {older[0]}" if older else ""
    return InterfaceMismatch(
        what=f"{package} was built for another version of the accelerator interface",
        # Names both versions, because the line of a finding has no "expected".
        found=f"{package} {version} is written for {written_for}; accel-core {core} has interface {own}{takes}"
        + (f", and the package asks for {needs[0]}" if needs else ""),
        expected=f"interface {' or '.join((own, *older))}, that of the installed accel-core",
        do=pip_install("accel-core", package, options="--upgrade"),
    )


def _without_duplicates(vendors: list[Vendor], broken: list[Finding]) -> Discovery:
    claims: dict[tuple[str, str], list[Vendor]] = defaultdict(list)
    for vendor in vendors:
        claims[vendor.key, vendor.variant].append(vendor)
    for (key, _), claimants in claims.items():
        if len(claimants) > 1:
            names = " and ".join(sorted(vendor.distribution for vendor in claimants))
            error = DuplicateVendor(
                what=f"more than one package provides the accelerator {claimants[0].label!r}",
                found=names,
                expected=f"one package for the key {key!r}",
                do=f"pip uninstall one of {names}",
            )
            broken.append(_unusable(claimants, error))
    alone = tuple(claimants[0] for claimants in claims.values() if len(claimants) == 1)
    return Discovery(alone, tuple(broken))


def _broken(point: importlib.metadata.EntryPoint, error: AccelError) -> Finding:
    package, version = declaring_package(point)
    key, variant = _named_by(point)
    entries = [entry for entry in cascade.entries(key) if variant in ("", entry.variant)]
    return Finding(
        key=key,
        priority=entries[0].priority if entries else cascade.priority(cascade.CPU_KEY) - 1,
        state=State.BROKEN,
        reason=_line(error),
        variant=variant,
        package=package,
        version=version,
        requires=_requires(key),
        error="".join(traceback.format_exception(error)),
    )


def _named_by(point: importlib.metadata.EntryPoint) -> tuple[str, str]:
    """Return key and variant by the name of an entry point: its key, or key and variant (`xpu.ipex`)."""
    key, _, variant = point.name.rpartition(".")
    if any(entry.variant == variant for entry in cascade.entries(key)):
        return key, variant
    return point.name, ""


def _unusable(vendors: list[Vendor], error: AccelError) -> Finding:
    """Return the finding about records that can be loaded and not be used."""
    first = vendors[0]
    return Finding(
        key=first.key,
        priority=max(vendor.priority for vendor in vendors),
        state=State.BROKEN,
        reason=_line(error),
        variant=first.variant,
        package=" and ".join(sorted(vendor.distribution for vendor in vendors)),
        version=first.version if len(vendors) == 1 else "",
        requires=_requires(first.key),
        hardware=any(map(_sees_hardware, vendors)) or None,
        error=str(error),
    )


def _sees_hardware(vendor: Vendor) -> bool:
    """Whether the probe of a record that cannot be used still says that its device is there. Does not raise."""
    try:
        with about_to(f"look for the device of {vendor.label}, whose package cannot be used"):
            return vendor.evidence().hardware is True
    except KeyboardInterrupt:
        raise
    except BaseException:
        return False


def _requires(key: str) -> str:
    return next((entry.sentence() for entry in cascade.entries(key)), "")


def _line(error: AccelError) -> str:
    return f"[{error.code}] {error.what}: {error.found}; {error.do}"
