# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The doctor's report as data: the schema of `accel doctor --json`, documented in docs/doctor.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from accel_core.cli.doctor.outcomes import Outcome
from accel_core.cli.doctor.torch_check import Torch
from accel_core.cli.packages import Bridge, DeepSpeed, Unmet
from accel_core.selection.current import Explanation, Selection
from accel_core.upstream.patches import Status

#: Increased when a field changes its meaning or is removed, not when one is added.
SCHEMA = 1


@dataclass(frozen=True)
class Remark:
    """A problem or a note: stable code, subject, what was found, and one line of advice."""

    code: str
    subject: str
    found: str
    advice: str


@dataclass(frozen=True)
class Facts:
    """Everything that was found in the environment.

    explanation: the accelerator that a run would choose; its candidates include the results of the children.
    selection:   the selection that it explains.
    stuck:       labels of candidates that hang, kill or interrupt their process.
    outcomes:    what `get_accelerator()` of `accel_core` and of `deepspeed` returns.
    speedups:    which methods of DeepSpeed are replaced for speed; empty without deepspeed or bridge.
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
    speedups: tuple[Status, ...] = ()


@dataclass(frozen=True)
class Report:
    """The facts, with the problems (exit status 1) and notes derived from them."""

    facts: Facts
    problems: tuple[Remark, ...]
    notes: tuple[Remark, ...]

    @property
    def healthy(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        facts = self.facts
        return {
            "schema": SCHEMA,
            "healthy": self.healthy,
            "python": facts.python,
            "accel_core": facts.core,
            "torch": asdict(facts.torch),
            "deepspeed": asdict(facts.deepspeed),
            "bridge": asdict(facts.bridge),
            "speedups": [asdict(status) for status in facts.speedups],
            **facts.explanation.to_dict(),
            "run": {name: asdict(outcome) for name, outcome in facts.outcomes.items()},
            "unmet": [asdict(lack) for lack in facts.unmet],
            "problems": [asdict(remark) for remark in self.problems],
            "notes": [asdict(remark) for remark in self.notes],
        }
