# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What is known about one candidate at one moment of the selection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class State(Enum):
    """Where a candidate stands; the values are what `accel doctor` prints."""

    #: Evidence is there; its runtime has not been asked yet.
    PENDING = "pending"
    PRESENT = "present"
    CHOSEN = "chosen"
    #: Its turn never came: another one was chosen, or asked for.
    OUTRANKED = "outranked"
    #: No runtime, or a runtime without a device (`Finding.runtime` tells which).
    ABSENT = "absent"
    BROKEN = "broken"
    #: Another runtime holds what it needs, or ACCEL_SKIP names it.
    BLOCKED = "blocked"
    #: Left to DeepSpeed's own backend.
    DEFERRED = "deferred"
    #: No package of this project (or a third party's) serves it here.
    NOT_INSTALLED = "not-installed"


@dataclass(frozen=True)
class Finding:
    """One candidate of the cascade.

    requires: the sentence `NPU_Accelerator requires torch_npu`.
    runtime:  its runtime is installed (whether or not there is a device).
    upstream: no package serves it; DeepSpeed's own backend would.
    devices:  usable devices, None while nobody has counted.
    error:    the traceback of a broken candidate.
    advice:   what to do about a broken one, where that is known.
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
    upstream: bool = False
    devices: int | None = None
    privateuse1: str = ""
    yields_to: tuple[str, ...] = ()
    error: str = ""
    advice: str = ""

    @property
    def label(self) -> str:
        """The key, with the variant where there are several: `xpu (native)`."""
        return f"{self.key} ({self.variant})" if self.variant else self.key

    def now(self, state: State, reason: str | None = None) -> Finding:
        """The same candidate in another state."""
        return replace(self, state=state, reason=self.reason if reason is None else reason)
