# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Outputs that the pages show are those of their commands; docs/tests/outputs.toml has the commands."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ci import workspace
from ci.printed import first_difference

ROOT = Path(__file__).resolve().parents[2]
ROWS: dict[str, dict[str, Any]] = workspace.read_toml(ROOT / "docs/tests/outputs.toml")
GENERATED = {"cli.md", "matrix.md", "port-rules.md"}
PAGES = [
    page
    for pattern in ("*.md", "docs/**/*.md", "packages/*/README.md", "examples/**/*.md")
    for page in sorted(ROOT.glob(pattern))
    if "results" not in page.parts and page.name not in GENERATED
]
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


@functools.cache
def printed(name: str, folder: Path) -> list[str]:
    """The lines that the last command of an output prints."""
    row = ROWS[name]
    kept = ROOT / "docs/tests/outputs" / row.get("files", name)
    place = folder / name
    if kept.is_dir():
        shutil.copytree(kept, place)
    place.mkdir(exist_ok=True)
    for link in ("examples", "shared"):
        (place / link).symlink_to(ROOT / link)
    dropped = ("ACCEL_", "DS_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_", "PYTEST_", "COLUMNS")
    base = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    base["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), base["PATH"]])
    base |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    done = None
    for command in row["run"]:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=place,
            env=base,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    assert done is not None
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outputs")


NAMES = [pytest.param(name, marks=pytest.mark.slow if row.get("slow") else ()) for name, row in ROWS.items()]


def lines_of(name: str, folder: Path) -> list[str]:
    missing = [module for module in ROWS[name]["needs"] if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"not run: {', '.join(missing)} not installed")
    return printed(name, folder)


@pytest.mark.more
@pytest.mark.upstream
@pytest.mark.parametrize("name", NAMES)
def test_a_command_prints_what_the_page_shows(name: str, folder: Path) -> None:
    page, shown = SHOWN[name]
    output = lines_of(name, folder)
    difference = first_difference(shown, output)
    assert difference is None, f"{page.relative_to(ROOT)} shows:\n{difference}\nprinted:\n" + "\n".join(
        output
    )


@pytest.mark.more
@pytest.mark.upstream
@pytest.mark.parametrize("name", NAMES)
def test_a_fault_in_any_line_of_the_page_would_be_found(name: str, folder: Path) -> None:
    _, shown = SHOWN[name]
    output = lines_of(name, folder)
    for at, line in enumerate(shown):
        word = max(re.findall(r"[A-Za-z]{2,}", line), key=len, default=None)
        if word is not None:
            planted = [*shown[:at], line.replace(word, f"{word}x"), *shown[at + 1 :]]
            assert first_difference(planted, output) == planted[at]
