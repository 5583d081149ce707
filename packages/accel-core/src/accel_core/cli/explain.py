# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel explain ACC-202`: print what an error code means and what to do, without a network."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the code."""
    parser.add_argument("code", metavar="CODE", help="ACC-202, acc-202 or 202")


def run(args: argparse.Namespace) -> int:
    """Print the paragraph about the code; returns 0, or 2 for an unknown code."""
    code = f"ACC-{args.code.upper().removeprefix('ACC-')}"
    found = paragraphs()
    if code not in found:
        print(f"no such code: {code}; known: {', '.join(found)}", file=sys.stderr)
        return 2
    Console().print(Markdown(f"**{code}** {found[code]}", hyperlinks=False))
    return 0


def paragraphs() -> dict[str, str]:
    """Return the paragraphs of docs/errors.md by code, present or former."""
    page = Path(__file__).parents[1] / "errors.md"  # copied by hatch_build.py
    if not page.is_file():
        page = Path(__file__).parents[5] / "docs/errors.md"  # an editable install
    found = re.findall(r"(?ms)^### (ACC-\d+)\n\n(.+?)(?=^##|\Z)", page.read_text(encoding="utf-8"))
    former = [(code, text) for _, text in found for code in re.findall(r"\bformerly\s+(ACC-\d+)", text)]
    return dict(found + former)
