# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Every error has its paragraph in docs/errors.md, and the tutorial the lines of its sources."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: The paragraphs of docs/errors.md, by code.
ERRORS = dict(
    re.findall(
        r"^### (ACC-\d+)\n\n(.+?)(?=^##|\Z)", (ROOT / "docs/errors.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
)  # fmt: skip


def error_classes() -> dict[str, ast.ClassDef]:
    """Every class in the packages that sets an error code, by its code."""
    found = {}
    for source in ROOT.glob("packages/*/src/**/*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                codes = [each.value.value for each in node.keywords if each.arg == "code"]
                assert not set(codes) & found.keys(), f"{codes} twice"
                found.update(dict.fromkeys(codes, node))
    return found


def test_every_error_has_its_paragraph_and_no_paragraph_is_left_over() -> None:
    kinds = error_classes()
    assert ERRORS.keys() == kinds.keys()
    for code, kind in kinds.items():
        bases = {ast.unparse(base) for base in kind.bases} - {"AccelError"}
        assert ERRORS[code].startswith(f"`{kind.name}` (")
        assert set(re.findall(r"`(\w+)`", ERRORS[code].partition(" (")[2].partition(")")[0])) == bases


# --- what the tutorial shows is what its sources have; packages/accel-testkit/tests/new_vendor builds and runs those

TUTORIAL = (ROOT / "docs/tutorial-privateuse1.md").read_text(encoding="utf-8")
EXCERPTS = re.findall(r"^<!-- from: (\S+) -->\n```\w+\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("path", "text"), EXCERPTS, ids=[path for path, _ in EXCERPTS])
def test_an_excerpt_is_in_its_file_line_by_line(path: str, text: str) -> None:
    assert text in (ROOT / path).read_text(encoding="utf-8")
