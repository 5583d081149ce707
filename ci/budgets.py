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
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ci import workspace
from ci.printed import renewed, table
from ci.problem import Problem, report
from ci.workspace import git, parse_toml

LIMITS, PAGE = Path("ci/budgets.toml"), Path("docs/architecture.md")
BEGIN, END = "<!-- sizes: generated -->", "<!-- sizes: end -->"
#: Part that is not a package -> a pattern of its files.
_OTHERS = {
    "tests": r"(?:^|/)tests/.*\.py$",
    "ci": r"^ci/[^/]+\.py$",
    "benchmarks": r"^benchmarks/.*\.py$",
    "shared": r"^shared/.*\.(?:py|jinja|cpp|h)$",
    "pages": r"^docs/(?!results/).*\.md$",
}
_SOURCE = r"^packages/([^/]+)/(?:src|csrc)/.*\.(?:py|cpp|c|h|cu|inc)$"
_CLASS = re.compile(r"^class ([A-Za-z_]\w*)", re.MULTILINE)
TWICE = "class names used twice"


def sizes(root: Path) -> dict[str, int]:
    """Return {part: lines}, and how many class names occur more than once below packages/*/src."""
    found: Counter[str] = Counter(dict.fromkeys([*workspace.load(root), *_OTHERS], 0))
    for path in git(root, "ls-files").splitlines():
        for part in _parts(path):
            found[part] += (root / path).read_bytes().count(b"\n")
    return {**found, TWICE: len(used_twice(root))}


def used_twice(root: Path) -> list[str]:
    """Return the class names that occur more than once below packages/*/src, the most frequent first."""
    sources = (root.joinpath(path) for path in git(root, "ls-files", "packages/*/src/*.py").splitlines())
    names = Counter(name for file in sources for name in _CLASS.findall(file.read_text(encoding="utf-8")))
    return [name for name, count in names.most_common() if count > 1]


def _parts(path: str) -> Iterator[str]:
    if found := re.match(_SOURCE, path):
        yield found[1]
    yield from (part for part, pattern in _OTHERS.items() if re.search(pattern, path))


def problems(today: Mapping[str, int], limits: Mapping[str, int]) -> Iterable[Problem]:
    """Yield a problem for each part over its limit, and for one without a limit."""
    for part, size in today.items():
        limit = limits.get(part)
        if limit is None:
            yield Problem(
                what=f"{part} has no limit",
                found=f"no {part!r} in {LIMITS}",
                expected="a number of lines for each package",
                do=f"add it below [limits], with today's {size}",
            )
        elif size > limit:
            yield Problem(
                what=f"{part} is over its limit",
                found=f"{size}, {size - limit} more than allowed",
                expected=f"at most {limit}",
                do="rename one of each"
                if part == TWICE
                else "remove lines, or a feature; the limit does not rise",
            )


def lowered(text: str, today: Mapping[str, int], ends: Mapping[str, int]) -> str:
    """Return the text of the file with each limit at today's size where that is less, but not below its end."""

    def lower(found: re.Match[str]) -> str:
        name, limit = found["name"], int(found["limit"])
        return f'"{name}" = {min(limit, max(today.get(name, limit), ends.get(name, 0)))}'

    head, mark, rest = text.partition("[ends]")
    return re.sub(r'^"(?P<name>[^"]+)" = (?P<limit>\d+)$', lower, head, flags=re.MULTILINE) + mark + rest


def raised(root: Path, limits: Mapping[str, int], ends: Mapping[str, int]) -> Iterable[Problem]:
    """Yield a problem for each limit above both its end and its value in an earlier commit."""
    lowest: dict[str, int] = {}
    for commit in git(root, "log", "--format=%H", "--", LIMITS.as_posix()).split():
        for part, limit in parse_toml(git(root, "show", f"{commit}:{LIMITS.as_posix()}"))["limits"].items():
            lowest[part] = min(limit, lowest.get(part, limit))
    for part, limit in limits.items():
        if limit > max(lowest.get(part, limit), ends.get(part, 0)):
            yield Problem(
                what=f"the limit of {part} was raised",
                found=f"{limit} in {LIMITS}, {lowest[part]} in an earlier commit",
                expected="a limit that falls or stays",
                do=f"set it to {lowest[part]}, and remove lines",
            )


def page(root: Path, today: Mapping[str, int], ends: Mapping[str, int]) -> str:
    """Return docs/architecture.md with its table of sizes renewed."""
    rows = [[part, f"{size:,}", f"{ends[part]:,}" if part in ends else ""] for part, size in today.items()]
    text = (root / PAGE).read_text(encoding="utf-8")
    return renewed(text, BEGIN, "\n".join(table(["part", "today", "limit"], rows)), END)


def main(root: Path) -> int:
    """Check, lower the limits and renew the table; return the exit status."""
    file = root / LIMITS
    text = file.read_text(encoding="utf-8")
    read, today = workspace.read_toml(file), sizes(root)
    status = report(
        [*problems(today, read["limits"]), *raised(root, read["limits"], read["ends"])],
        f"{len(today)} limits are kept",
    )
    if not status:
        file.write_text(lowered(text, today, read["ends"]), encoding="utf-8")
        (root / PAGE).write_text(page(root, today, read["ends"]), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
