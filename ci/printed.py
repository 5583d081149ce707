# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Tables of pages, and parts of pages that programs write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def renewed(text: str, begin: str, part: str, end: str) -> str:
    """Return a page with the part between two lines renewed; raises ValueError where it lacks one of them."""
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"no lines {begin} and {end}")
    return f"{before}{begin}\n\n{part}\n\n{end}{after}"
