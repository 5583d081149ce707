# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the doctor found, as data: the schema of `accel doctor --json`, told in docs/doctor.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from accel_core.cli.doctor.outcomes import Outcome
from accel_core.cli.doctor.torch_check import Torch
from accel_core.cli.packages import Bridge, DeepSpeed, Unmet
from accel_core.selection.explanation import Explanation
from accel_core.selection.select import Selection

#: Raised when a field changes its meaning or goes; new fields may come without.
SCHEMA = 1


@dataclass(frozen=True)
class Remark:
    """One thing worth telling: a stable code, what it is about, what was found, and one line what to do."""

    code: str
    subject: str
    found: str
    advice: str


@dataclass(frozen=True)
class Facts:
    """All that was seen.

    explanation: what a run would choose; its findings hold the children's answers.
    selection:   the verdict behind it.
    stuck:       labels of candidates that hang, kill or interrupt their process.
    outcomes:       what a program gets that asks `accel_core`, and one that asks `deepspeed`.
    """

    python: dict[str, str]
    core: str
    torch: Torch
    deepspeed: DeepSpeed
    bridge: Bridge
    unmet: tuple[Unmet, ...]
    selection: Selection
    explanation: Explanation
    stuck: frozenset[str] = frozenset()
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """The facts, and what they mean: problems (exit status 1) and notes."""

    facts: Facts
    problems: tuple[Remark, ...]
    notes: tuple[Remark, ...]

    @property
    def healthy(self) -> bool:
        """No problem was found."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        facts = self.facts
        return {
            "schema": SCHEMA,
            "healthy": self.healthy,
            "python": facts.python,
            "accel_core": facts.core,
            "torch": asdict(facts.torch),
            "deepspeed": asdict(facts.deepspeed),
            "bridge": asdict(facts.bridge),
            **facts.explanation.to_dict(),
            "run": {name: asdict(outcome) for name, outcome in facts.outcomes.items()},
            "unmet": [asdict(lack) for lack in facts.unmet],
            "problems": [asdict(remark) for remark in self.problems],
            "notes": [asdict(remark) for remark in self.notes],
        }
