# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Commands and problems, for all programs of ci/."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Problem(SystemExit):
    """One sentence, then what to do. Raised, it ends the program with that text and status 1."""


def report(problems: Iterable[Problem], success: str) -> int:
    """Print each problem to stderr, or the success line; return the exit status."""
    status = 0
    for problem in problems:
        print(problem, file=sys.stderr)
        status = 1
    if not status:
        print(success)
    return status


def run(*command: object, **options: Any) -> str:
    """Return what a command prints. Raise Problem with the end of it if it fails."""
    words = [str(word) for word in command]
    given = {"text": True, "errors": "replace", "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(words, check=False, **{**given, **options})
    if done.returncode:
        last = "\n  ".join(f"{done.stdout or ''}{done.stderr or ''}".strip().splitlines()[-15:])
        raise Problem(f"{' '.join(words)} ended with status {done.returncode}\n  {last}")
    return str(done.stdout)


def python(*arguments: object, **options: Any) -> str:
    """Run this Python; see `run`."""
    return run(sys.executable, *arguments, **options)


def git(checkout: Path, *arguments: str) -> str:
    """Return what git prints in a checkout, without the last newline."""
    return run("git", *arguments, cwd=checkout, stderr=subprocess.PIPE).removesuffix("\n")


def environment(*own: str, **variables: str) -> dict[str, str]:
    """Return os.environ without variables that steer imports, selection, or begin with one of `own`."""
    steering = ("ACCEL_", "DS_ACCELERATOR", "PYTHONPATH", "PYTHONHOME", *own)
    return {k: v for k, v in os.environ.items() if not k.startswith(steering)} | variables
