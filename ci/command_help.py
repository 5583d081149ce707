# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The page of the command line, made of the parsers of `accel` and of its sub-commands.

python -m ci.command_help    write docs/cli.md

Why: `--help` is seen by one who has installed the command; a search finds the page.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from accel_core.cli.main import available

PAGE = Path("docs/cli.md")
_INTRODUCTION = """\
# The command line

What `--help` prints, made by `python -m ci.command_help`. `python -m accel_core.cli` is the same as `accel`.
Each sub-command is part of the package that its heading names.
"""


def parsers() -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Yield each sub-command with the package that has it and its parser; actions of one follow it."""
    for name, source in sorted(available()[0].items()):
        parser = argparse.ArgumentParser(prog=f"accel {name}")
        source.attach(parser)
        yield name, source.package, parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for inner, nested in action.choices.items():
                    yield f"{name} {inner}", source.package, nested


def page() -> str:
    """The page's text."""
    os.environ["COLUMNS"] = "110"
    parts = [_INTRODUCTION]
    for name, package, parser in parsers():
        depth = "##" + "#" * name.count(" ")
        where = "" if " " in name else f" ({package})"
        parts.append(f"{depth} accel {name}{where}\n\n```text\n{parser.format_help().strip()}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
    sys.exit(0)
