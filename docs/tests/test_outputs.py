# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Outputs that the pages show are those of their commands; docs/tests/outputs.toml has the commands."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from ci import workspace
from ci.printed import first_difference, pages

ROOT = Path(__file__).resolve().parents[2]
ROWS: dict[str, dict[str, Any]] = workspace.read_toml(ROOT / "docs/tests/outputs.toml")
PAGES = pages(ROOT, generated=False)
#: Comments by which other tests find a block, or that say that a block is no output.
OTHERS = ("run", "file", "from", "drawing", "compared in")
_BLOCK = re.compile(
    r"(?:^<!-- (?P<kind>[\w ]+)(?:: (?P<name>.+?))? -->\n)?^```(?P<language>[^\n`]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_PROGRAMS = (
    "accel|cd|cp|deepspeed|df|echo|env|export|find|git|ls|make|mkdir|patch|pip|pre-commit|ps|pytest|python|rm|sed"
    "|torchrun|touch|tox"
)
_COMMAND = re.compile(rf"(?:\$ |#|(?:[A-Z_]+=\S* )*(?:[\w./-]+/)?(?:{_PROGRAMS})\b|\s|$|DEEPSPEED=)")


def _text(block: re.Match[str]) -> list[str]:
    return [line for line in block["text"].splitlines() if not line.startswith("$ ")]


SHOWN = {
    block["name"]: (page, _text(block))
    for page in PAGES
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8"))
    if block["kind"] == "output"
}


def test_every_output_on_a_page_has_its_commands_and_no_row_is_left_over() -> None:
    assert SHOWN.keys() == ROWS.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_block_that_shows_more_than_commands_says_what_it_is(page: Path) -> None:
    unknown = []
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        more = [line for line in block["text"].replace("\\\n", " ").splitlines() if not _COMMAND.match(line)]
        if block["language"] in ("", "text", "console") and more and block["kind"] not in ("output", *OTHERS):
            unknown += more[:1]
    # Its outputs have a test of their own.
    assert page.name == "deepspeed-issues.md" or unknown == [], "<!-- output: NAME -->, or <!-- drawing -->"


NAMES = [pytest.param(name, marks=pytest.mark.slow if row.get("slow") else ()) for name, row in ROWS.items()]


@pytest.mark.more
@pytest.mark.upstream
@pytest.mark.parametrize("name", NAMES)
def test_a_command_prints_what_the_page_shows(name: str, shell: Any, tmp_path: Path) -> None:
    row, (page, shown) = ROWS[name], SHOWN[name]
    missing = [module for module in row["needs"] if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"not run: {', '.join(missing)} not installed")
    kept = ROOT / "docs/tests/outputs" / row.get("files", name)
    if kept.is_dir():
        shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    for link in ("examples", "shared"):
        (tmp_path / link).symlink_to(ROOT / link)
    *before, last = row["run"]
    for command in before:
        assert shell(command, tmp_path).returncode == 0, command
    done = shell(last, tmp_path)
    assert done.returncode == row.get("status", 0), done.stdout
    difference = first_difference(shown, done.stdout.splitlines())
    assert difference is None, f"{page.relative_to(ROOT)} shows:\n{difference}\nprinted:\n{done.stdout}"
