# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The selection: discover, look for evidence, then confirm and construct as `choose` decides."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from accel_core import cascade, env
from accel_core.errors import AccelError, in_short
from accel_core.selection import confirm, messages
from accel_core.selection.announce import about_to
from accel_core.selection.choose import Request, Step, Verdict, choose
from accel_core.selection.construct import construct
from accel_core.selection.deepspeed import DeepSpeed
from accel_core.selection.discover import discover
from accel_core.selection.finding import Finding, State
from accel_core.vendor import Vendor, module_exists


@dataclass(frozen=True)
class Selection:
    """The outcome of a selection: the verdict, and the accelerator unless it failed."""

    request: Request
    verdict: Verdict
    accelerator: Any = None


class Candidates:
    """The findings of a selection, and the probe of each candidate."""

    def __init__(self, deepspeed: DeepSpeed) -> None:
        discovery = discover()
        self._deepspeed, self._keys = deepspeed, deepspeed.keys()
        self._vendors: dict[tuple[str, str], Vendor] = {(v.key, v.variant): v for v in discovery.vendors}
        served = {vendor.key for vendor in discovery.vendors} | {finding.key for finding in discovery.broken}
        self.findings = [
            confirm.of_entry(entry, deepspeed.backend(entry.key, entry.variant), self._keys)
            for entry in cascade.ENTRIES
            if entry.key not in served
        ]
        for finding in [*map(confirm.of_vendor, discovery.vendors), *discovery.broken]:
            self.put(finding)

    def confirm(self, finding: Finding) -> Finding:
        """Import the candidate's runtime in this process and count its devices."""
        vendor = self.vendor(finding)
        return confirm.confirmed(finding, vendor or self._deepspeed.backend(finding.key, finding.variant))

    def put(self, answer: Finding) -> None:
        """Replace the finding about the same candidate, or add it.

        For a package that cannot be used DeepSpeed's own backends say whether the device is there, and become
        candidates in its place.
        """
        same = _identity(answer)
        self.findings = [finding for finding in self.findings if _identity(finding) != same]
        if answer.state is State.BROKEN and not answer.upstream:
            owns = self._own_backends(answer)
            if any(own.hardware for own in owns):
                answer = replace(answer, hardware=True)
            self.findings += [own for own in owns if self._needed(own)]
        self.findings.append(answer)

    def _own_backends(self, broken: Finding) -> list[Finding]:
        return [
            self.of_deepspeed(entry.key, entry.variant, broken.package)
            for entry in cascade.entries(broken.key)
            if broken.variant in ("", entry.variant)
        ]

    def _needed(self, own: Finding) -> bool:
        """Whether DeepSpeed has this backend, its runtime is there, and no package that works serves the same."""
        served = any(
            _identity(f) == _identity(own)
            or (f.key == own.key and f.variant in ("", own.variant) and f.state is not State.BROKEN)
            for f in self.findings
        )
        return own.key in (self._keys or ()) and own.state is State.PENDING and not served

    def of_deepspeed(self, key: str, variant: str, replaces: str) -> Finding:
        """Return the finding about DeepSpeed's own backend in the place of a package."""
        (entry,) = (entry for entry in cascade.entries(key) if entry.variant == variant)
        return confirm.of_backend(entry, self._deepspeed.backend(key, variant), replaces)

    def vendor(self, finding: Finding) -> Vendor | None:
        """Return the vendor record of a finding; None for a backend of DeepSpeed."""
        return None if finding.upstream else self._vendors.get((finding.key, finding.variant))


def _identity(finding: Finding) -> tuple[str, str, str, bool]:
    return finding.key, finding.variant, finding.package, finding.upstream


def request_from_environment(upstream: frozenset[str] | None) -> Request:
    """Return the request that DS_ACCELERATOR and the ACCEL_* variables describe."""
    return Request(
        asked=env.DS_ACCELERATOR.raw(),
        strict=env.STRICT.on(),
        skip=env.SKIP.names(),
        claimed=confirm.privateuse1_holder(),
        upstream=upstream,
    )


def select(
    deepspeed: DeepSpeed,
    after_importing_deepspeed: Callable[[], Any],
    deepspeed_asked: Callable[[], bool],
    key: str | None = None,
) -> Selection:
    """Select and construct the accelerator.

    after_importing_deepspeed: imports deepspeed, whose import selects, and returns the accelerator it selected.
    deepspeed_asked: returns whether an import of deepspeed has called `get_accelerator()` since the last call.
    key: what to choose in place of DS_ACCELERATOR's.
    The error of a failed selection is in the verdict, not raised.
    """
    if error := _torch_fails():
        return Selection(Request(), Verdict(Step.FAIL, None, (), error=messages.torch_fails(error)))
    candidates = Candidates(deepspeed)
    maker = _Maker(candidates, deepspeed, after_importing_deepspeed, deepspeed_asked)

    def ask(finding: Finding) -> tuple[Finding, str]:
        return candidates.confirm(finding), confirm.privateuse1_holder()

    request = request_from_environment(deepspeed.keys())
    return walk(candidates, request if key is None else replace(request, asked=key), ask, maker.build)


@dataclass(frozen=True)
class _Maker:
    """Constructor of accelerators; the fields are the arguments of `select`."""

    candidates: Candidates
    deepspeed: DeepSpeed
    after_importing_deepspeed: Callable[[], Any]
    deepspeed_asked: Callable[[], bool]

    def build(self, finding: Finding) -> Any:
        """Return the accelerator of a candidate, or a finding with the error."""
        vendor = self.candidates.vendor(finding)
        deepspeed_first = vendor is None or vendor.imports_deepspeed
        try:
            try:
                return self._made(finding, vendor, deepspeed_first)
            except Exception:
                if deepspeed_first or not self.deepspeed_asked():
                    raise
            # The class derives from DeepSpeed's own without `imports_deepspeed` in its record. Try again with
            # deepspeed imported first, as in a program that begins with deepspeed.
            return self._made(finding, vendor, True)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return _unbuildable(finding, error, "" if vendor is None else _advice(vendor))

    def _made(self, finding: Finding, vendor: Vendor | None, deepspeed_first: bool) -> Any:
        accelerator = self.after_importing_deepspeed() if deepspeed_first else None
        if accelerator is not None:
            return accelerator
        with about_to(f"import and construct the accelerator of {finding.label}"):
            return self.deepspeed.accelerator(finding.key) if vendor is None else construct(vendor)


def walk(
    candidates: Candidates,
    request: Request,
    ask: Callable[[Finding], tuple[Finding, str]],
    build: Callable[[Finding], Any],
) -> Selection:
    """Execute the steps that `choose` returns: a run in its own process, the doctor in child processes.

    ask:   confirms a candidate; returns the finding and the backend that holds torch's PrivateUse1 slot.
    build: returns the accelerator of a candidate, or a finding with the error.
    """
    while True:
        verdict = choose(candidates.findings, request)
        finding = verdict.finding
        if verdict.step is Step.FAIL or finding is None:
            return Selection(request, verdict)
        if verdict.step is Step.CONFIRM:
            answer, claimed = ask(finding)
            candidates.put(answer)
            request = replace(request, claimed=claimed)
            continue
        accelerator = build(finding)
        if isinstance(accelerator, Finding):
            candidates.put(accelerator)
            continue
        return Selection(request, verdict, accelerator)


def _torch_fails() -> BaseException | None:
    """Return the exception of `import torch`; None if it works or torch is not installed."""
    if "torch" in sys.modules or not module_exists("torch"):
        return None
    try:
        with about_to("import torch, and the backend extensions that it calls"):
            importlib.import_module("torch")
        return None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error


def _advice(vendor: Vendor) -> str:
    """Return the advice if the class derives from DeepSpeed's own and its module was imported before deepspeed."""
    name = vendor.accelerator.partition(":")[0]
    half_imported = getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)
    return f"import deepspeed before {name}" if vendor.imports_deepspeed and half_imported else ""


def _unbuildable(finding: Finding, error: BaseException, advice: str) -> Finding:
    cause = in_short(error) if isinstance(error, AccelError) else f"{type(error).__name__}: {error}"
    return replace(
        finding,
        state=State.BROKEN,
        reason=f"its accelerator cannot be constructed: {cause}",
        error="".join(traceback.format_exception(error)),
        advice=advice,
    )
