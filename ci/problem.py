# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a program of ci/ says when something does not hold: four parts, as everywhere in this project.

Why: the errors of accel_core have them, too, but ci/ imports no package that it checks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable


class Problem(Exception):
    """What failed, what was found, what was expected, what to do. Raised where nothing more can be checked."""

    def __init__(self, *, what: str, found: str, expected: str, do: str) -> None:
        super().__init__(f"{what}\n  found:    {found}\n  expected: {expected}\n  do:       {do}")
        self.what, self.found, self.expected, self.do = what, found, expected, do


def report(problems: Iterable[Problem], success: str) -> int:
    """Print each problem to stderr, also one that is raised, or the success line; return the exit status."""
    count = 0
    try:
        for problem in problems:
            count += 1
            print(problem, file=sys.stderr)
    except Problem as problem:
        count += 1
        print(problem, file=sys.stderr)
    if not count:
        print(success)
    return min(count, 1)
