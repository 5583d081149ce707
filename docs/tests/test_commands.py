# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Commands in the documents: `accel …` is read by its own parser, and files that pytest or Python gets exist."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from accel_core.cli.main import available, missing
from ci.printed import pages

ROOT = Path(__file__).resolve().parents[2]
PAGES = pages(ROOT)
#: In the package that `accel new-vendor` makes.
MADE = {"tests/simulated.json"}
FOLDERS = ("benchmarks/", "ci/", "docs/", "examples/", "packages/", "tests/")


def commands(page: Path) -> list[list[str]]:
    """The words of each line in a block of code that a shell can read, up to a pipe or redirection."""
    found = []
    for block in re.findall(
        r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        for line in block.replace("\\\n", " ").splitlines():
            try:
                words = shlex.split(line.removeprefix("$ "), comments=True)
            except ValueError:
                continue
            end = next((at for at, word in enumerate(words) if word in (">", "|", "&&", ";")), len(words))
            found.append(words[:end])
    return [
        words for words in found if words and not any("…" in word or word[0] == "[" for word in words if word)
    ]


CALLS = sorted({tuple(words) for page in PAGES for words in commands(page) if words[0] == "accel"})


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_a_command_of_accel_takes_these_arguments(words: tuple[str, ...]) -> None:
    name, arguments = words[1], words[2:]
    source = available()[0].get(name)
    if source is None and missing(name):
        pytest.skip(f"not installed: the package that adds `accel {name}`")
    assert source is not None
    parser = argparse.ArgumentParser(prog=f"accel {name}")
    source.attach(parser)
    parser.parse_args(arguments)


def test_there_are_commands_of_every_kind() -> None:
    assert {words[1] for words in CALLS} >= {"doctor", "io", "launch", "ops", "port", "sim", "verify"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_file_that_a_command_names_exists(page: Path) -> None:
    named = {
        word.partition("::")[0]
        for words in commands(page)
        if {"pytest", "python", "torchrun", "deepspeed", "accel"} & set(words)
        for word in words
        if word.startswith(FOLDERS) and "{" not in word
    }
    assert {name for name in named - MADE if not (ROOT / name).exists()} == set()
