# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the selection knows about one candidate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class State(Enum):
    """State of a candidate; `accel doctor` prints the values."""

    #: There is evidence; the runtime has not been imported yet.
    PENDING = "pending"
    PRESENT = "present"
    CHOSEN = "chosen"
    #: Another candidate was chosen or requested first.
    OUTRANKED = "outranked"
    #: No runtime, or a runtime without a device (see `Finding.runtime`).
    ABSENT = "absent"
    BROKEN = "broken"
    #: Another runtime holds the PrivateUse1 slot, or ACCEL_SKIP names it.
    BLOCKED = "blocked"
    #: Left to DeepSpeed's own backend.
    DEFERRED = "deferred"
    #: No installed package supports it.
    NOT_INSTALLED = "not-installed"


@dataclass(frozen=True)
class Finding:
    """One candidate of the cascade.

    requires: a sentence such as `NPU_Accelerator requires torch_npu`.
    runtime:  its runtime is installed (whether or not there is a device).
    hardware: its device files are there (whether or not there is a runtime); None if unknown.
    upstream: DeepSpeed's own backend; no installed package supports it, or none that can be used.
    replaces: the installed package that cannot be used, where DeepSpeed's own backend is a candidate in its place.
    devices:  number of usable devices, None before they are counted.
    error:    the traceback of a broken candidate.
    advice:   what to do about a broken candidate or a missing runtime, if known.
    deprecated: a sentence about the older interface number for which its package is written; empty if there is none.
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
    error: str = ""
    advice: str = ""
    deprecated: str = ""

    @property
    def label(self) -> str:
        """The key, with what distinguishes it from others of that key: `xpu (native)`, `npu (deepspeed)`."""
        details = ", ".join(filter(None, (self.variant, self.replaces and "deepspeed")))
        return f"{self.key} ({details})" if details else self.key

    def now(self, state: State, reason: str | None = None) -> Finding:
        """Return the same candidate in another state."""
        return replace(self, state=state, reason=self.reason if reason is None else reason)
