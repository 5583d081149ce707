# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Results of a rehearsal, and messages between its processes, as data.

Numbers without a unit in their name are bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from accel_core.data import Count, InvalidData, from_data, to_data
from accel_core.errors import InvalidInput

#: Increased when a field changes its meaning; a record of another schema is refused.
SCHEMA = 1

#: The phases and kinds of memory that the report knows, in its order. Others are shown behind them.
PHASES = ("init", "forward", "backward", "step", "checkpoint", "other")
KINDS = (
    "parameters", "gradients", "optimizer states", "master parameters", "activations", "buckets", "temporaries",
    "other",
)  # fmt: skip

Verdict = Literal["fits", "does not fit", "failed", "stopped"]
Outcome = Literal["finished", "out of memory", "failed", "stopped"]


def _invalid(source: str, found: str) -> InvalidInput:
    return InvalidInput(
        f"cannot read {source}: {found}; expected a record of schema {SCHEMA}, as `accel rehearse "
        "--json` writes it",
        do="rehearse again with this accel-rehearse, and compare the new record",
    )


@dataclass(frozen=True)
class DeviceModel:
    """A device as it is sold.

    name: `npu:910b-64`, or the vendor alone if only its key was given. per_node: devices in a common machine.
    reserve: what the runtime and the collectives keep for themselves, by default. source: the document that states the
    capacity.
    """

    name: str
    vendor: str
    capacity: Count
    per_node: Count
    reserve: Count
    source: str


@dataclass(frozen=True)
class DryJob:
    """Settings of a rehearsal.

    which: `first`, `last`, `stages`, `all` and numbers of ranks. reserve: bytes of a device that are the runtime's.
    output: the program's own output is shown.
    """

    profile: DeviceModel
    program: tuple[str, ...]
    ranks: Count
    per_node: Count
    which: tuple[str, ...]
    reserve: Count
    steps: Count
    output: bool

    @property
    def memory(self) -> int:
        """Return the bytes of a device that the program may use."""
        return self.profile.capacity - self.reserve


@dataclass(frozen=True)
class Phase:
    """The peaks within one phase. by_kind, module and source describe the moment of the peak of requested bytes."""

    name: str
    requested: Count
    allocated: Count
    reserved: Count
    by_kind: Mapping[str, Count] = field(default_factory=dict)
    module: str = ""
    source: str = ""


@dataclass(frozen=True)
class Place:
    """Memory that one place of the program holds at the peak. source: as `train.py:31`; count: of tensors."""

    source: str
    module: str
    kind: str
    bytes: Count
    count: Count = 1


@dataclass(frozen=True)
class HostUse:
    """Peaks of a rank's host memory."""

    pageable: Count = 0
    pinned: Count = 0


@dataclass(frozen=True)
class Collective:
    """One kind of collective call. size: ranks in the group; calls and bytes: per step, after the first."""

    operation: str
    group: str
    size: Count
    phase: str
    dtype: str
    calls: float
    bytes: float


@dataclass(frozen=True)
class Failure:
    """Why a rank did not finish. asked: bytes that were refused."""

    message: str
    phase: str = ""
    module: str = ""
    source: str = ""
    asked: Count = 0


@dataclass(frozen=True)
class DryRank:
    """One rehearsed rank.

    role: what it stands for, as `first` or `stage 2`. requested, allocated, reserved: peaks of the whole run.
    timeline: the last full step, as index of the event, requested bytes and phase. largest: at the highest peak.
    computed: operators without a meta kernel. unanswered: broadcasts and receives whose content is not known.
    """

    rank: Count
    role: str
    outcome: Outcome
    requested: Count
    allocated: Count
    reserved: Count
    phases: tuple[Phase, ...] = ()
    timeline: tuple[tuple[Count, Count, str], ...] = ()
    largest: tuple[Place, ...] = ()
    host: HostUse = HostUse()
    collectives: tuple[Collective, ...] = ()
    failure: Failure | None = None
    computed: tuple[str, ...] = ()
    unanswered: Count = 0
    notes: tuple[str, ...] = ()

    @property
    def peak(self) -> Phase | None:
        """Return the phase with the highest peak of requested bytes."""
        return max(self.phases, key=lambda phase: phase.requested, default=None)


@dataclass(frozen=True)
class Rehearsal(DryJob):
    """A rehearsed job.

    assumed, not_promised: sentences. committed: memory that the largest process of the rehearsal really took.
    """

    ranks_rehearsed: tuple[DryRank, ...]
    assumed: tuple[str, ...] = ()
    not_promised: tuple[str, ...] = ()
    seconds: float = 0.0
    committed: Count = 0
    interrupted: bool = False
    schema: int = SCHEMA

    def to_json(self) -> str:
        """Return the record as JSON; `from_json` reads it."""
        return json.dumps(to_data(self), indent=1)

    @classmethod
    def from_json(cls, text: str, source: str = "the record") -> Rehearsal:
        """Return the record in `text`; raises `InvalidInput`, with `source`."""
        try:
            data = json.loads(text)
            if isinstance(data, dict) and data.get("schema") != SCHEMA:
                raise InvalidData(f"schema {data.get('schema')!r:.60}")  # its fields are other ones
            return from_data(cls, data, "rehearsal")
        except (ValueError, RecursionError) as error:
            raise _invalid(source, str(error) or type(error).__name__) from error

    @property
    def fullest(self) -> DryRank | None:
        """Return the rank that stands for the verdict: one that ran out of memory, else the highest peak."""
        return max(
            self.ranks_rehearsed,
            key=lambda rank: (rank.outcome == "out of memory", rank.reserved),
            default=None,
        )

    @property
    def spare(self) -> int:
        """Return what the rank with the highest peak of reserved bytes leaves of the device; may be negative."""
        return self.memory - max((rank.reserved for rank in self.ranks_rehearsed), default=0)

    @property
    def verdict(self) -> Verdict:
        """Return the verdict. One rank that does not fit decides, whatever became of the others."""
        outcomes = {rank.outcome for rank in self.ranks_rehearsed}
        if "out of memory" in outcomes or self.spare < 0:
            return "does not fit"
        if "failed" in outcomes:
            return "failed"
        if self.interrupted or "stopped" in outcomes:
            return "stopped"
        return "fits" if outcomes else "failed"

    @property
    def exit_status(self) -> int:
        """Return the exit status of the command; a run that was stopped has a shell's status of Ctrl-C."""
        return {"fits": 0, "does not fit": 3, "failed": 1, "stopped": 130}[self.verdict]


@dataclass(frozen=True)
class Tape:
    """Data that a rank leaves to those that are rehearsed after it.

    given: what it broadcast and sent, by channel. peers: the ranks that it sent to. experts: those that hold other
    experts of the same layers.
    """

    given: Mapping[str, bytes]
    peers: tuple[int, ...]
    experts: tuple[int, ...]
