# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pages that programs write: templates of ci/templates, and parts of pages between two lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2


def table(rows: Iterable[Sequence[object]], *head: str) -> str:
    """Return a table."""
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
)  # fmt: skip
_TEMPLATES.filters["table"] = table


def page(name: str, **data: Any) -> str:
    """Return the page of a template."""
    return _TEMPLATES.get_template(f"{name}.md.jinja").render(data)


def renewed(text: str, name: str, part: str) -> str:
    """Return a page with the part of that name renewed. Raise ValueError if it has no place for it."""
    begin, end = f"<!-- {name}: generated -->", f"<!-- {name}: end -->"
    found = re.fullmatch(f"(.*{begin}\n).*(\n{end}.*)", text, re.DOTALL)
    if found is None:
        raise ValueError(f"no lines {begin} and {end}")
    return f"{found[1]}\n{part.rstrip()}\n{found[2]}"
