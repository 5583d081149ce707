# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Subjects of commits: `core: reject empty device lists`, at most 72 characters.

python -m ci.subjects FILE    check the message in FILE, as the hook commit-msg does; exits with 1 if it is refused
python -m ci.subjects         print the subjects since the branch left origin/main that the hook would refuse
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ci.problem import Problem, report
from ci.workspace import git

LONGEST = 72
_SHAPE = re.compile(r"[a-z][a-z0-9/-]*(, [a-z][a-z0-9/-]*)*: (?P<verb>[a-z][a-z-]*) \S.*[^.]")
#: First words that are not an imperative verb.
_NOT_A_VERB = re.compile(r"(an?|the|no|what|whoever|where|its?|.*(ing|[^e]ed|ses))$")
_MADE_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ")


def fault(subject: str) -> str:
    """Return why a subject is refused; empty if it is not."""
    if subject.startswith(_MADE_BY_GIT):
        return ""
    if len(subject) > LONGEST:
        return f"{len(subject)} characters"
    if ";" in subject:
        return "more than one change, joined by a semicolon"
    shape = _SHAPE.fullmatch(subject)
    if shape is None:
        return "not `package: verb …`"
    return f"{shape['verb']!r} is not an imperative verb" if _NOT_A_VERB.match(shape["verb"]) else ""


def problem(subject: str) -> Problem:
    """Return the problem of a refused subject."""
    return Problem(
        what="this subject of a commit is refused",
        found=f"{subject!r}: {fault(subject)}",
        expected=f"`core: reject empty device lists`: package, colon, imperative verb, at most {LONGEST} characters",
        do="shorten it; the reason goes into the body",
    )


def main(arguments: list[str]) -> int:
    """Check a message, or report the subjects of this branch."""
    if arguments:
        lines = Path(arguments[0]).read_text(encoding="utf-8").splitlines()
        subject = next((line for line in lines if line and not line.startswith("#")), "")
        return report([problem(subject)] if fault(subject) else [], "")
    try:
        base = git(Path.cwd(), "merge-base", "HEAD", "origin/main").strip()
    except Problem:
        print("subjects of commits: not checked, this clone has no origin/main")
        return 0
    for subject in git(Path.cwd(), "log", "--format=%s", f"{base}..HEAD").splitlines():
        if fault(subject):
            print(f"subject outside CONTRIBUTING.md: {subject!r}: {fault(subject)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
