# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a rehearsal found, and what its processes pass to each other, as data.

Numbers without a unit in their name are bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from accel_core.data import Count, InvalidData, from_data, to_data
from accel_sim.errors import InvalidRecord

#: Increased when a field changes its meaning; a record of another schema is refused.
SCHEMA = 1
#: A record of a thousand ranks is smaller.
_LARGEST_FILE = 256 << 20

#: The phases and kinds of memory that the report knows, in its order. Others are shown behind them.
PHASES = ("init", "forward", "backward", "step", "checkpoint", "other")
KINDS = (
    "parameters", "gradients", "optimizer states", "master parameters", "activations", "buckets", "temporaries",
    "other",
)  # fmt: skip

T = TypeVar("T")
Verdict = Literal["fits", "does not fit", "failed", "stopped"]
Outcome = Literal["finished", "out of memory", "failed", "stopped"]


class Json:
    """Data that a file holds."""

    def to_json(self) -> str:
        """Return the data as JSON; `from_json` reads it."""
        return json.dumps(to_data(self), indent=1)

    @classmethod
    def from_json(cls: type[T], text: str, source: str = "the record") -> T:
        """Return the data in `text`; raises `InvalidRecord`, with `source`."""
        if len(text) > _LARGEST_FILE:
            raise _invalid(source, f"{len(text)} characters")
        try:
            data = json.loads(text)
            if cls is Rehearsal and isinstance(data, dict) and data.get("schema") != SCHEMA:
                raise InvalidData(f"schema {data.get('schema')!r:.60}")  # its fields are other ones
            return from_data(cls, data, cls.__name__.lower())
        except (ValueError, RecursionError) as error:
            raise _invalid(source, str(error) or type(error).__name__) from error


def _invalid(source: str, found: str) -> InvalidRecord:
    return InvalidRecord(
        what=f"cannot read {source}",
        found=found,
        expected=f"a record of schema {SCHEMA}, as `accel rehearse --json` writes it",
        do="rehearse again with this accel-sim, and compare the new record",
    )


@dataclass(frozen=True)
class Profile:
    """A device as it is sold.

    name: `npu:910b-64`, or the vendor alone if only its key was given. per_node: devices in a common machine.
    reserve: what the runtime and the collectives keep for themselves, by default. allocator: whose rules the
    allocator follows. source: the document that states the capacity.
    """

    name: str
    vendor: str
    capacity: Count
    per_node: Count
    reserve: Count
    allocator: str
    source: str


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
    """What one place of the program holds at the peak. source: as `train.py:31`; count: of tensors."""

    source: str
    module: str
    kind: str
    bytes: Count
    count: Count = 1


@dataclass(frozen=True)
class Host:
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
    """Why a rank did not finish. kind: as `out of memory` or `control flow`; asked: bytes that were refused."""

    kind: str
    message: str
    phase: str = ""
    module: str = ""
    source: str = ""
    asked: Count = 0


@dataclass(frozen=True)
class Rank(Json):
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
    host: Host = Host()
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
class Rehearsal(Json):
    """A rehearsed job.

    program: its arguments. memory: of a device; the program may use what `reserve` leaves of it. assumed,
    not_promised: sentences. committed: memory that the largest process of the rehearsal really took.
    """

    program: tuple[str, ...]
    profile: Profile
    memory: Count
    reserve: Count
    ranks: Count
    per_node: Count
    steps: Count
    ranks_rehearsed: tuple[Rank, ...]
    assumed: tuple[str, ...] = ()
    not_promised: tuple[str, ...] = ()
    seconds: float = 0.0
    committed: Count = 0
    interrupted: bool = False
    schema: int = SCHEMA

    @property
    def fullest(self) -> Rank | None:
        """Return the rank that stands for the verdict: one that ran out of memory, else the highest peak."""
        return max(
            self.ranks_rehearsed,
            key=lambda rank: (rank.outcome == "out of memory", rank.reserved),
            default=None,
        )

    @property
    def spare(self) -> int:
        """Return what the rank with the highest peak of reserved bytes leaves of the device; may be negative."""
        return self.memory - self.reserve - max((rank.reserved for rank in self.ranks_rehearsed), default=0)

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
class Options(Json):
    """What the parent asks for.

    device: its key, or a file that describes it. role: the rank's, in the report. reserve: bytes the program cannot
    have. pad, arena: of the allocator (csrc/dry.h). fused: fused operators allocate nothing. record: the file to
    write. tape: the file for what this rank broadcasts and sends. replay: those of ranks rehearsed before.
    """

    device: str
    rank: int
    ranks: int
    role: str
    steps: int
    record: str
    tape: str
    reserve: int = 0
    pad: int = 0
    arena: bool = False
    fused: bool = True
    replay: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tape(Json):
    """What a rank leaves to those that are rehearsed after it.

    given: what it broadcast and sent, by channel, in hexadecimal digits. peers: the ranks that it sent to.
    experts: those that hold other experts of the same layers.
    """

    given: Mapping[str, str]
    peers: tuple[int, ...]
    experts: tuple[int, ...]

    @classmethod
    def read(cls, path: str | Path) -> Tape:
        """Return the tape in a file."""
        return cls.from_json(Path(path).read_text(encoding="utf-8"))
