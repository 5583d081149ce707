# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a check says when it does not hold: four parts, as everywhere in this project.

Why: the errors of accel_core have them, too, but ci/ imports no package that it checks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """What failed, what was found, what was expected, what to do."""

    what: str
    found: str
    expected: str
    do: str

    def __str__(self) -> str:
        return f"{self.what}\n  found:    {self.found}\n  expected: {self.expected}\n  do:       {self.do}"


class CheckError(Exception):
    """A program of ci/ cannot go on; `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def report(problems: Sequence[Problem], success: str) -> int:
    """Writes every problem to stderr, or the success line to stdout; returns the exit status."""
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    print(success)
    return 0
