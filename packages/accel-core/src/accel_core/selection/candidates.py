# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The candidates of a selection: found by entry point, their evidence without imports, and what their runtimes say.

A faulty package is a candidate, too: a broken one, with the reason.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.metadata
import logging
import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol

from accel_core import activate, env
from accel_core.devices import CPU_KEY, DEVICES, Device, known_device, known_devices
from accel_core.errors import AccelError, InterfaceMismatch, InvalidEnvironment, InvalidVendor, in_short
from accel_core.install import pip_install
from accel_core.vendor import (
    ENTRY_POINT_GROUP,
    SUPPORTED_INTERFACES,
    Probe,
    Vendor,
    declaring_package,
    distribution_version,
)


class State(Enum):
    """State of a candidate; `accel doctor` prints the values."""

    #: There is evidence; the runtime has not been imported yet.
    PENDING = "pending"
    PRESENT = "present"
    CHOSEN = "chosen"
    #: Another candidate was chosen or requested first.
    OUTRANKED = "outranked"
    #: No runtime, or a runtime without a device (see `Candidate.runtime`).
    ABSENT = "absent"
    BROKEN = "broken"
    #: Another runtime holds the PrivateUse1 slot, or ACCEL_SKIP names it.
    BLOCKED = "blocked"
    #: Left to DeepSpeed's own backend.
    DEFERRED = "deferred"
    #: No installed package supports it.
    NOT_INSTALLED = "not-installed"


@dataclass(frozen=True)
class Candidate:
    """One candidate of a selection.

    requires: a sentence such as `NPU_Accelerator requires torch_npu`.
    runtime:  its runtime is installed (whether or not there is a device).
    hardware: its device file was found, or its runtime counted devices; None if unknown.
    upstream: DeepSpeed's own backend; no installed package supports it, or none that can be used.
    replaces: the installed package that cannot be used, where DeepSpeed's own backend is a candidate in its place.
    devices:  number of usable devices, None before they are counted.
    error:    the traceback of a broken candidate.
    advice:   what to do about a broken candidate or a missing runtime, if known.
    """

    key: str
    priority: int
    state: State
    reason: str
    variant: str = ""
    package: str = ""
    version: str = ""
    requires: str = ""
    runtime: bool = False
    hardware: bool | None = None
    upstream: bool = False
    replaces: str = ""
    devices: int | None = None
    privateuse1: str = ""
    yields_to: tuple[str, ...] = ()
    takes: str = ""
    error: str = ""
    advice: str = ""

    @property
    def label(self) -> str:
        """The key, with what distinguishes it from others of that key: `xpu (native)`, `npu (deepspeed)`."""
        details = ", ".join(filter(None, (self.variant, self.replaces and "deepspeed")))
        return f"{self.key} ({details})" if details else self.key

    def now(self, state: State, reason: str | None = None) -> Candidate:
        """Return the same candidate in another state."""
        return replace(self, state=state, reason=self.reason if reason is None else reason)


class DeepSpeed(Protocol):
    """The installed DeepSpeed, or its absence; `upstream.backends.StockDeepSpeed` says what its methods do."""

    def keys(self) -> frozenset[str] | None: ...
    def probe(self, device: Device) -> Probe: ...
    def accelerator(self, key: str) -> Any: ...
    def load(self) -> None: ...
    def importing(self) -> bool: ...
    def launching(self) -> bool: ...


_log = logging.getLogger("accel_core")


@contextmanager
def about_to(step: str) -> Iterator[None]:
    """Log the next step, on stderr under ACCEL_VERBOSE=1, and again if it is interrupted (Ctrl-C)."""
    _log.debug("about to %s", step)
    if _verbose():
        _write(f"accel_core: about to {step}\n")
    try:
        yield
    except KeyboardInterrupt:
        _log.warning("interrupted while it was about to %s", step)
        raise


def is_worker() -> bool:
    """Return True in multiprocessing children that are not ranks, such as DataLoader workers.

    Workers are daemons. While a child imports the program's module at its start, the parent has run that module.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    current = process.current_process()
    return bool(current.daemon or getattr(current, "_inheriting", False))


def _verbose() -> bool:
    try:
        return env.VERBOSE.on()
    except InvalidEnvironment:
        return True  # an invalid value still shows that more output is wanted


def _write(line: str) -> None:
    if sys.stderr is None:
        return
    sys.stderr.write(line)
    sys.stderr.flush()
    if not faulthandler.is_enabled():
        try:
            faulthandler.enable()
        except (OSError, ValueError, AttributeError):
            pass  # a notebook's stderr has no file descriptor


@dataclass(frozen=True)
class Discovery:
    """The usable vendors, and a candidate for each entry point that cannot be used."""

    vendors: tuple[Vendor, ...]
    broken: tuple[Candidate, ...]


def discover(entry_points: Iterable[importlib.metadata.EntryPoint] | None = None) -> Discovery:
    """Load all vendor records. Does not raise: a faulty package becomes a candidate."""
    if entry_points is None:
        entry_points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    vendors: list[Vendor] = []
    broken: list[Candidate] = []
    for point in _distinct(entry_points):
        try:
            vendor = _load(point)
        except AccelError as error:
            broken.append(_unloadable(point, error))
            continue
        if vendor.interface in SUPPORTED_INTERFACES:
            vendors.append(vendor)
        else:
            broken.append(_unusable([vendor], _mismatch(point, f"interface {vendor.interface}")))
    return _without_duplicates(vendors, broken)


def _distinct(points: Iterable[importlib.metadata.EntryPoint]) -> list[importlib.metadata.EntryPoint]:
    # An editable install in addition to a wheel of the same version lists its entry points twice.
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
            f"the vendor entry point {point.name!r} of {package} cannot be imported: "
            f"{type(error).__name__}: {error} (from {point.value})",
            do=f"reinstall or remove it: pip uninstall {package}",
        ) from error
    if not isinstance(vendor, Vendor):
        raise InvalidVendor(
            f"the vendor entry point {point.name!r} of {package} is not a vendor: {point.value} is a "
            f"{type(vendor).__name__}",
            do=f'point the entry at the record, as in `{point.name} = "package.vendor:VENDOR"`',
        )
    return replace(vendor, distribution=vendor.distribution or package, version=version or vendor.version)


def _older_interface(error: BaseException) -> str:
    """Describe the interface of a package whose record fails to load because of it; empty for other failures."""
    if activate.needs_newer_core(error):
        return f"an interface that has what this one lacks ({error})"
    if isinstance(error, TypeError) and "Vendor.__init__()" in str(error):
        return f"an interface whose Vendor record has other fields ({error})"
    return ""


def _mismatch(point: importlib.metadata.EntryPoint, written_for: str) -> InterfaceMismatch:
    from accel_core.__about__ import __version__  # of an error alone

    package, version = declaring_package(point)
    needs = [
        text for text in (point.dist.requires or () if point.dist else ()) if text.startswith("accel-core")
    ]
    accepted = " or ".join(map(str, SUPPORTED_INTERFACES))
    return InterfaceMismatch(
        f"{package} {version} is written for {written_for}; accel-core {__version__} has interface {accepted}"
        + (f", and the package requires {needs[0]}" if needs else ""),
        do=pip_install("accel-core", package, options="--upgrade"),
    )


def _without_duplicates(vendors: list[Vendor], broken: list[Candidate]) -> Discovery:
    claims: dict[tuple[str, str], list[Vendor]] = defaultdict(list)
    for vendor in vendors:
        claims[vendor.key, vendor.variant].append(vendor)
    for claimants in claims.values():
        if len(claimants) > 1:
            names = " and ".join(sorted(vendor.distribution for vendor in claimants))
            error = InvalidVendor(
                f"more than one package provides the accelerator {claimants[0].label!r}: {names}",
                do=f"pip uninstall one of {names}",
            )
            broken.append(_unusable(claimants, error))
    alone = tuple(claimants[0] for claimants in claims.values() if len(claimants) == 1)
    return Discovery(alone, tuple(broken))


def _unloadable(point: importlib.metadata.EntryPoint, error: AccelError) -> Candidate:
    package, version = declaring_package(point)
    key, variant = _named_by(point)
    known = [device for device in known_devices(key) if variant in ("", device.variant)]
    return _faulty(
        error,
        key,
        priority=known[0].priority if known else known_device(CPU_KEY).priority - 1,
        variant=variant,
        package=package,
        version=version,
        error="".join(traceback.format_exception(error)),
    )


def _faulty(fault: AccelError, key: str, **fields: Any) -> Candidate:
    """Return the candidate of a package that cannot be used. fields: the others of Candidate."""
    requires = next((device.sentence() for device in known_devices(key)), "")
    reason = f"[{fault.code}] {fault.message}; {fault.do}"
    return Candidate(key=key, state=State.BROKEN, reason=reason, requires=requires, **fields)


def _named_by(point: importlib.metadata.EntryPoint) -> tuple[str, str]:
    """Return key and variant by the name of an entry point: its key, or key and variant (`xpu.ipex`)."""
    key, _, variant = point.name.rpartition(".")
    if any(device.variant == variant for device in known_devices(key)):
        return key, variant
    return point.name, ""


def _unusable(vendors: list[Vendor], error: AccelError) -> Candidate:
    """Return the candidate about records that can be loaded and not be used."""
    first = vendors[0]
    return _faulty(
        error,
        first.key,
        priority=max(vendor.priority for vendor in vendors),
        variant=first.variant,
        package=" and ".join(sorted(vendor.distribution for vendor in vendors)),
        version=first.version if len(vendors) == 1 else "",
        hardware=any(map(_sees_hardware, vendors)) or None,
        error=str(error),
    )


def _sees_hardware(vendor: Vendor) -> bool:
    """Return whether the probe of a record that cannot be used still finds its device. Does not raise."""
    try:
        with about_to(f"look for the device of {vendor.label}, whose package cannot be used"):
            return vendor.evidence().hardware is True
    except KeyboardInterrupt:
        raise
    except BaseException:
        return False


#: Seconds after which a slow runtime is logged.
SLOW = 10.0


def of_vendor(vendor: Vendor) -> Candidate:
    """Return the candidate about an installed vendor, from its evidence."""
    known = [d for d in known_devices(vendor.key) if d.variant == vendor.variant or not vendor.variant]
    own = f"{vendor.accelerator.rpartition(':')[2]} requires {vendor.requires}"
    return _from_evidence(
        vendor,
        vendor,
        version=vendor.version or distribution_version(vendor.distribution) or "",
        requires=known[0].sentence() if known else own,
        advice=vendor.how_to_install(),
    )


def of_backend(device: Device, probe: Probe, replaces: str = "") -> Candidate:
    """Return the candidate about DeepSpeed's own backend for a device.

    replaces: the installed package in whose place it is a candidate.
    """
    return _from_evidence(device, probe, requires=device.sentence(), upstream=True, replaces=replaces)


def of_device(device: Device, probe: Probe) -> Candidate:
    """Return the candidate about a device that no installed package serves; the probe is of DeepSpeed's backend."""
    seen = of_backend(device, probe)
    if seen.state is State.PENDING:
        return seen
    served = (
        f"{device.distribution} is not installed" if device.distribution else "no package of ours serves it"
    )
    return seen.now(State.NOT_INSTALLED, f"{served}; {seen.reason}")


def _from_evidence(record: Vendor | Device, probe: Probe | Vendor, **fields: Any) -> Candidate:
    candidate = Candidate(
        key=record.key,
        variant=record.variant,
        priority=record.priority,
        state=State.PENDING,
        reason="",
        package=record.distribution,
        privateuse1=record.privateuse1,
        yields_to=record.yields_to,
        takes=next((device.takes for device in known_devices(record.key)), ""),
        **fields,
    )
    try:
        with about_to(f"look for evidence of {_named(candidate)}"):
            evidence = probe.evidence()
        possible = evidence.runtime and evidence.hardware is not False
        state = State.PENDING if possible else State.ABSENT
        return replace(
            candidate,
            state=state,
            reason=evidence.reason,
            runtime=evidence.runtime,
            hardware=evidence.hardware,
            advice="" if evidence.runtime else candidate.advice,
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _failed(candidate, error, "its search for evidence")


def confirmed(candidate: Candidate, probe: Probe | Vendor) -> Candidate:
    """Return the candidate after importing the runtime and counting devices: present, absent or broken.

    Unless devices are counted, the reason keeps what the evidence says of the device files and the driver.
    """
    try:
        with about_to(f"import the runtime of {_named(candidate)}"), _named_when_slow(candidate):
            answer = probe.confirm()
        if answer.devices > 0:
            counted = replace(candidate, state=State.PRESENT, reason=answer.reason, hardware=True)
        else:
            counted = candidate.now(State.ABSENT, f"{answer.reason}; {candidate.reason}")
        return replace(counted, devices=answer.devices, runtime=True)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        failed = _failed(candidate, error, "its runtime")
        return failed.now(State.BROKEN, f"{failed.reason}; {candidate.reason}")


def _named(candidate: Candidate) -> str:
    package = f"{candidate.package} {candidate.version}" if candidate.version else "DeepSpeed's own backend"
    return f"{candidate.label} ({package})"


def _failed(candidate: Candidate, error: BaseException, part: str) -> Candidate:
    found = ": ".join(filter(None, [type(error).__name__, in_short(error)]))
    return broken_by(candidate, error, f"{part} fails with {found}")


def broken_by(candidate: Candidate, error: BaseException, reason: str, advice: str = "") -> Candidate:
    """Return the candidate, broken by this exception."""
    text = "".join(traceback.format_exception(error))
    return replace(candidate, state=State.BROKEN, reason=reason, error=text, advice=advice)


@contextmanager
def _named_when_slow(candidate: Candidate) -> Iterator[None]:
    text = "still waiting for the runtime of %s after %g s; ACCEL_SKIP=%s passes over it"
    timer = threading.Timer(SLOW, _log.warning, (text, candidate.label, SLOW, candidate.key))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # the thread must not exist if the program forks right after the selection


def privateuse1_holder() -> str:
    """Return the backend that holds torch's PrivateUse1 slot in this process; empty while it is free."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "_C"):
        return ""
    name = str(torch._C._get_privateuse1_backend_name())
    return "" if name == "privateuseone" else name


class CandidateSet:
    """The candidates of a selection, and the probe of each candidate.

    asked: the key of DS_ACCELERATOR, if a candidate has it: others are not examined.
    """

    def __init__(self, deepspeed: DeepSpeed, asked: str | None = None) -> None:
        discovery = discover()
        self._deepspeed, self._keys = deepspeed, deepspeed.keys()
        self._vendors: dict[tuple[str, str], Vendor] = {(v.key, v.variant): v for v in discovery.vendors}
        found: list[Vendor | Candidate | Device] = [*discovery.vendors, *discovery.broken]
        served = {record.key for record in found}
        found = [*(device for device in DEVICES if device.key not in served), *found]
        self.all: list[Candidate] = []
        for record in [record for record in found if record.key == asked] or found:
            if isinstance(record, Device):
                record = of_device(record, deepspeed.probe(record))
            self.put(of_vendor(record) if isinstance(record, Vendor) else record)

    def confirm(self, candidate: Candidate) -> Candidate:
        """Import the candidate's runtime in this process and count its devices."""
        vendor = self.vendor(candidate)
        return confirmed(
            candidate, vendor or self._deepspeed.probe(known_device(candidate.key, candidate.variant))
        )

    def put(self, answer: Candidate) -> None:
        """Replace the candidate about the same candidate, or add it.

        For a package that cannot be used DeepSpeed's own backends say whether the device is there, and become
        candidates in its place.
        """
        same = _identity(answer)
        self.all = [candidate for candidate in self.all if _identity(candidate) != same]
        if answer.state is State.BROKEN and not answer.upstream:
            owns = self._own_backends(answer)
            if any(own.hardware for own in owns):
                answer = replace(answer, hardware=True)
            self.all += [own for own in owns if self._needed(own)]
        self.all.append(answer)

    def _own_backends(self, broken: Candidate) -> list[Candidate]:
        return [
            of_backend(device, self._deepspeed.probe(device), broken.package)
            for device in known_devices(broken.key)
            if broken.variant in ("", device.variant)
        ]

    def _needed(self, own: Candidate) -> bool:
        """Return whether DeepSpeed has this backend, its runtime is there, and no working package serves the same."""
        served = any(
            _identity(f) == _identity(own)
            or (f.key == own.key and f.variant in ("", own.variant) and f.state is not State.BROKEN)
            for f in self.all
        )
        return own.key in (self._keys or ()) and own.state is State.PENDING and not served

    def vendor(self, candidate: Candidate) -> Vendor | None:
        """Return the vendor record of a candidate; None for a backend of DeepSpeed."""
        return None if candidate.upstream else self._vendors.get((candidate.key, candidate.variant))


def _identity(candidate: Candidate) -> tuple[str, str, str, bool]:
    return candidate.key, candidate.variant, candidate.package, candidate.upstream
