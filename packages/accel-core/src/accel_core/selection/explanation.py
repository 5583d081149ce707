# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The explanation of a selection, as text and as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from accel_core.errors import AccelError
from accel_core.selection.current import CurrentAccelerator
from accel_core.selection.finding import Finding, State
from accel_core.selection.messages import is_telling
from accel_core.selection.select import Selection


@dataclass(frozen=True)
class Explanation:
    """The chosen accelerator, the reason, and the state of every candidate.

    chosen: key of the accelerator in use; empty if the selection failed.
    how:    the reason in one sentence.
    error:  the text of the error, if the selection failed.
    """

    chosen: str
    how: str
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return self.error
        lines = [f"accelerator: {self.chosen} ({self.how})"]
        reported = [
            f for f in self.findings if f.state not in (State.NOT_INSTALLED, State.CHOSEN, State.DEFERRED)
        ]
        telling = [f for f in reported if is_telling(f)]
        lines += [f"  {finding.label}: {finding.state.value}: {finding.reason}" for finding in telling]
        if others := ", ".join(f.label for f in reported if f not in telling):
            lines.append(f"  neither runtime nor device: {others}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, for JSON."""
        return {
            "chosen": self.chosen,
            "how": self.how,
            "error": self.error,
            "warnings": list(self.warnings),
            "candidates": [finding_to_dict(finding) for finding in self.findings],
        }


def finding_to_dict(finding: Finding) -> dict[str, Any]:
    """Return a finding as plain data, for JSON."""
    return {**asdict(finding), "state": finding.state.value, "label": finding.label}


def explain_current(current: CurrentAccelerator) -> Explanation:
    """Explain the accelerator in use, selecting it if necessary. Does not raise for a failed selection."""
    try:
        current.get()
    except AccelError as error:
        _, selection = current.state()
        return explained(selection) if selection else Explanation("", "selection failed", error=str(error))
    accelerator, selection = current.state()
    if selection is None or selection.verdict.finding is None:
        return Explanation(str(accelerator.device_name()), "set by the program")
    return explained(selection)


def explained(selection: Selection) -> Explanation:
    """Explain the outcome of a selection."""
    verdict = selection.verdict
    chosen = verdict.finding
    if verdict.error is not None or chosen is None:
        # The other candidates are not confirmed in this process.
        findings = tuple(f.now(State.OUTRANKED) if f.state is State.PENDING else f for f in verdict.findings)
        return Explanation("", "selection failed", findings, (), str(verdict.error))
    asked = f"DS_ACCELERATOR={selection.request.asked}" if selection.request.asked is not None else "detected"
    own = ", DeepSpeed's own backend" if chosen.upstream else f", {chosen.package} {chosen.version}".rstrip()
    return Explanation(chosen.key, f"{asked}{own}: {chosen.reason}", verdict.findings, verdict.warnings)
