# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Evidence for a candidate, found without imports, and confirmation by its runtime."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from accel_core import cascade
from accel_core.cascade import CascadeEntry
from accel_core.errors import in_short
from accel_core.selection.announce import about_to
from accel_core.selection.deepspeed import Backend
from accel_core.selection.finding import Finding, State
from accel_core.vendor import Probe, Vendor, distribution_version, interfaces

#: Seconds after which a slow runtime is logged.
SLOW = 10.0

_log = logging.getLogger("accel_core")


def of_vendor(vendor: Vendor) -> Finding:
    """Return the finding about an installed vendor, from its evidence."""
    entries = [e for e in cascade.entries(vendor.key) if e.variant == vendor.variant or not vendor.variant]
    finding = Finding(
        key=vendor.key,
        variant=vendor.variant,
        priority=vendor.priority,
        state=State.PENDING,
        reason="",
        package=vendor.distribution,
        version=vendor.version or distribution_version(vendor.distribution) or "",
        requires=entries[0].sentence()
        if entries
        else f"{vendor.accelerator.rpartition(':')[2]} requires {vendor.requires}",
        privateuse1=vendor.privateuse1,
        yields_to=vendor.yields_to,
        advice=vendor.how_to_install(),
        deprecated=interfaces.deprecation(vendor.interface),
    )
    return _with_evidence(finding, vendor)


def of_backend(entry: CascadeEntry, backend: Backend, replaces: str = "") -> Finding:
    """Return the finding about DeepSpeed's own backend for an entry of the cascade.

    backend: its probe. replaces: the installed package in whose place it is a candidate.
    """
    finding = Finding(
        key=entry.key,
        variant=entry.variant,
        priority=entry.priority,
        state=State.PENDING,
        reason="",
        package=entry.distribution,
        requires=entry.sentence(),
        privateuse1=backend.privateuse1,
        yields_to=backend.yields_to,
        upstream=True,
        replaces=replaces,
    )
    return _with_evidence(finding, backend)


def of_entry(entry: CascadeEntry, backend: Backend, keys: frozenset[str] | None) -> Finding:
    """Return the finding about an entry of the cascade that no installed package serves.

    backend: the probe of DeepSpeed's own backend for it. keys: the backends of the installed DeepSpeed.
    """
    seen = of_backend(entry, backend)
    if seen.state is State.PENDING:
        return seen
    served = (
        f"{entry.distribution} is not installed" if entry.distribution else "no package of ours serves it"
    )
    missing = f"{served}; {seen.reason}"
    if seen.runtime and entry.key in (keys or ()):
        missing += "; DeepSpeed's own backend can be selected by name"
    return seen.now(State.NOT_INSTALLED, missing)


def _with_evidence(finding: Finding, probe: Probe | Vendor) -> Finding:
    try:
        with about_to(f"look for evidence of {_named(finding)}"):
            evidence = probe.evidence()
        possible = evidence.runtime and evidence.hardware is not False
        state = State.PENDING if possible else State.ABSENT
        return replace(
            finding,
            state=state,
            reason=evidence.reason,
            runtime=evidence.runtime,
            hardware=evidence.hardware,
            advice="" if evidence.runtime else finding.advice,
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _broken(finding, error, "its search for evidence")


def confirmed(finding: Finding, probe: Probe | Vendor) -> Finding:
    """Return the finding after importing the runtime and counting devices: present, absent or broken."""
    try:
        with about_to(f"import the runtime of {_named(finding)}"), _named_when_slow(finding):
            answer = probe.confirm()
        state = State.PRESENT if answer.devices > 0 else State.ABSENT
        return replace(finding, state=state, reason=answer.reason, devices=answer.devices, runtime=True)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _broken(finding, error, "its runtime")


def _named(finding: Finding) -> str:
    package = f"{finding.package} {finding.version}".strip() if finding.version else "DeepSpeed's own backend"
    return f"{finding.label} ({package})"


def _broken(finding: Finding, error: BaseException, part: str) -> Finding:
    reason = f"{part} fails with {type(error).__name__}"
    if first := in_short(error):
        reason += f": {first}"
    return replace(
        finding,
        state=State.BROKEN,
        reason=reason,
        error="".join(traceback.format_exception(error)),
        advice="",
    )


@contextmanager
def _named_when_slow(finding: Finding) -> Iterator[None]:
    text = "still waiting for the runtime of %s after %g s; ACCEL_SKIP=%s passes over it"
    timer = threading.Timer(SLOW, _log.warning, (text, finding.label, SLOW, finding.key))
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
