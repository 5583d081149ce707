# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Limits of size: lines of source by package, tests, ci, benchmarks, shared and pages; class names used twice.

python -m ci.budgets    check the limits, lower those that are met by more, and renew the table of docs/architecture.md

A limit starts at the size of the day when it was written and falls with it, down to its end. Nothing grants an
exception: to add lines, remove others.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from ci import workspace
from ci.pages import renewed, table
from ci.program import Problem, git, report

LIMITS, PAGE = Path("ci/budgets.toml"), Path("docs/architecture.md")
TWICE = "class names used twice"


def sizes(root: Path) -> dict[str, int]:
    """Return {part: lines}, and how many class names occur more than once below packages/*/src."""
    patterns = workspace.read_toml(root / LIMITS)["files"]
    source = patterns.pop("packages")
    patterns = {name: source.format(name) for name in workspace.load(root)} | patterns
    files = {path: (root / path).read_bytes() for path in git(root, "ls-files").splitlines()}
    found = {
        part: sum(text.count(b"\n") for path, text in files.items() if re.fullmatch(pattern, path))
        for part, pattern in patterns.items()
    }
    sources = (text for path, text in files.items() if re.fullmatch(r"packages/[^/]+/src/.*\.py", path))
    names = Counter(name for text in sources for name in re.findall(rb"^class (\w+)", text, re.MULTILINE))
    return {**found, TWICE: sum(count > 1 for count in names.values())}


def problems(root: Path, today: Mapping[str, int]) -> Iterator[Problem]:
    """Yield a problem for each part over its limit or without one, and for each limit that was raised."""
    data = workspace.read_toml(root / LIMITS)
    for part, size in today.items():
        limit = data["limits"].get(part)
        if limit is None:
            yield Problem(f"{part} has no limit; add today's {size} to {LIMITS}")
        elif size > limit:
            yield Problem(f"{part} is over its limit: {size}, at most {limit}; remove lines, or a feature")
    commits = git(root, "log", "--format=%H", "--", str(LIMITS)).split()
    history = [workspace.parse_toml(git(root, "show", f"{each}:{LIMITS}"))["limits"] for each in commits]
    for part, limit in data["limits"].items():
        lowest = min((each[part] for each in history if part in each), default=limit)
        if limit > max(lowest, data["ends"].get(part, 0)):
            yield Problem(f"the limit of {part} was raised to {limit}; set it to {lowest}, and remove lines")


def lower(root: Path, today: Mapping[str, int]) -> None:
    """Set each limit to today's size where that is less, but not below its end; renew the table of sizes."""
    text, data = (root / LIMITS).read_text(encoding="utf-8"), workspace.read_toml(root / LIMITS)
    for part, limit in data["limits"].items():
        lowered = min(limit, max(today.get(part, limit), data["ends"].get(part, 0)))
        text = text.replace(f'"{part}" = {limit}\n', f'"{part}" = {lowered}\n', 1)
    (root / LIMITS).write_text(text, encoding="utf-8")
    rows = [[part, f"{size:,}", format(data["ends"].get(part, size), ",")] for part, size in today.items()]
    page = (root / PAGE).read_text(encoding="utf-8")
    (root / PAGE).write_text(renewed(page, "sizes", table(rows, "part", "today", "limit")), encoding="utf-8")


def main(root: Path) -> int:
    """Check, lower the limits and renew the table; return the exit status."""
    today = sizes(root)
    status = report(problems(root, today), f"{len(today)} limits are kept")
    if not status:
        lower(root, today)
    return status


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
