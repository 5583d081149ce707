# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The pages with commands, and how their outputs are compared with what the commands print.

The shown lines have to follow each other in the output; a line `…` stands for any lines, `…` in a line for any text.
Words and whole numbers have to be equal. These may differ:

- numbers with a decimal point, by a thousandth of themselves, or by what is lost in the shown number's last digit;
- versions of three parts, as 2.13.0: any other;
- folders of a path, if it begins with one: its last part counts, of Python's without the version;
- spaces.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

_ANY = "…"
_VARIABLE = re.compile(
    r"(?P<any>…)"
    r"|(?P<version>(?<![\w.])\d+\.\d+\.\d+(?:\+\w+)?(?!\.?\w))"
    r"|(?P<path>(?<![\w/])[./~][\w./~-]*/(?P<name>[\w.-]+))"
    r"|(?P<decimal>(?<![\w.])-?\d+\.\d+(?:e[+-]?\d+)?(?!\.?\d))"
)


def pages(root: Path, *, generated: bool = True) -> list[Path]:
    """Return the pages with commands for readers; without those that a program makes if so wanted."""
    patterns = ("*.md", "docs/**/*.md", "packages/*/README.md", "examples/**/*.md")
    found = [page for pattern in patterns for page in sorted(root.glob(pattern))]
    made = {"cli.md", "matrix.md"}
    return [page for page in found if generated or not ("results" in page.parts or page.name in made)]


def _pattern(line: str) -> tuple[re.Pattern[str], list[str]]:
    """Return a pattern for an output line, and the numbers with which its groups are compared."""
    parts, numbers, end = [], [], 0
    for found in _VARIABLE.finditer(line):
        parts.append(re.escape(line[end : found.start()]))
        end = found.end()
        if found["any"]:
            parts.append(".*?")
        elif found["version"]:
            parts.append(r"\d+\.\d+\.\d+(?:\+\w+)?")
        elif found["path"]:
            name = re.sub(r"^python[\d.]*$", "python", found["name"])
            parts.append(rf"(?:[^\s:]*/)?{re.escape(name)}" + (r"[\d.]*" if name == "python" else ""))
        else:
            parts.append(r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
            numbers.append(found["decimal"])
    parts.append(re.escape(line[end:]))
    return re.compile("".join(parts)), numbers


def _near(shown: str, printed: str) -> bool:
    mantissa, _, exponent = shown.partition("e")
    last_digit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return math.isclose(float(shown), float(printed), rel_tol=0.001, abs_tol=0.501 * last_digit)


def same(shown: str, printed: str) -> bool:
    """Return True if an output line matches the shown one."""
    pattern, numbers = _pattern(" ".join(shown.split()))
    found = pattern.fullmatch(" ".join(printed.split()))
    return found is not None and all(map(_near, numbers, found.groups()))


def first_difference(shown: Sequence[str], printed: Sequence[str]) -> str | None:
    """Return the first shown line that the output does not have in its place; None if it has all."""
    furthest = 0

    def follows(line: int, place: int) -> bool:
        nonlocal furthest
        furthest = max(furthest, line)
        if line == len(shown):
            return True
        if shown[line].strip() == _ANY:
            return any(follows(line + 1, later) for later in range(place, len(printed) + 1))
        return place < len(printed) and same(shown[line], printed[place]) and follows(line + 1, place + 1)

    if any(follows(0, place) for place in range(len(printed) + 1)):
        return None
    return shown[furthest]
