# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the tutorial shows is what its sources have; packages/accel-testkit/tests/new_vendor builds and runs those."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/tutorial-privateuse1.md").read_text(encoding="utf-8")
EXCERPTS = re.findall(r"^<!-- from: (\S+) -->\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_part_of_the_sources_is_shown() -> None:
    shown = {(ROOT / path).suffix for path, _ in EXCERPTS}
    assert len(EXCERPTS) == PAGE.count("<!-- from:")
    assert shown == {".cpp", ".h", ".py"}


@pytest.mark.parametrize(("path", "text"), EXCERPTS, ids=[path for path, _ in EXCERPTS])
def test_an_excerpt_is_in_its_file_line_by_line(path: str, text: str) -> None:
    assert text in (ROOT / path).read_text(encoding="utf-8")


def test_no_other_source_code_is_shown_than_excerpts() -> None:
    others = re.sub(r"^<!-- from: .*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    code = re.findall(r"^```\w+\n(.*?)^```$", others, re.MULTILINE | re.DOTALL)
    assert all(text.startswith(">>> ") for text in code)
