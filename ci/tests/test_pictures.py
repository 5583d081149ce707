# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A picture has what a terminal has: lines that were written over are gone, and a moment is that which is asked for."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ci import pictures

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def written() -> str:
    """What a program writes whose status is two lines below its output."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=40)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for step in range(4):
            live.update(Text(f"step {step}\nrunning", style="bold"), refresh=True)
            console.print(f"output {step}")
    return file.getvalue()


def test_the_end_has_the_output_and_no_status(written: str) -> None:
    lines = Text.from_ansi(pictures.screen(written)).plain.splitlines()
    assert [line.strip() for line in lines if line.strip()] == [f"output {step}" for step in range(4)]


def test_a_moment_has_its_status_below_the_output_until_then(written: str) -> None:
    text = Text.from_ansi(pictures.screen(written, r"^step 2")).plain
    assert text.splitlines() == ["…", "output 0", "output 1", "step 2", "running"]


def test_a_line_that_is_written_over_from_its_start_is_replaced() -> None:
    assert pictures.screen("10 %\r20 %\r30 %\n") == "30 %\n"


@pytest.mark.parametrize("name", pictures.COMMANDS)
def test_a_picture_shows_its_command_and_nothing_of_this_machine(name: str) -> None:
    text = (ROOT / pictures.FOLDER / name).read_text(encoding="utf-8")
    assert f'aria-label="{pictures.COMMANDS[name][0]}"' in text
    assert "@font-face" not in text
    # What is left of a path that begins at the root is of the vendor's own software.
    paths = re.findall(r"(?<![\w<:/.])/\w+/[\w./-]*", text)
    assert {path for path in paths if not path.startswith("/System/Library/")} == set()


def test_every_picture_is_made_by_a_command_and_shown_on_a_page() -> None:
    kept = {path.name for path in (ROOT / pictures.FOLDER).iterdir()}
    assert kept == set(pictures.COMMANDS)
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert {name for name in kept if f"pictures/{name})" not in text} == set()
