# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What each rank executes, and whether it is there."""

from __future__ import annotations

import importlib.machinery
import os
import shutil
import sys
from pathlib import Path

from accel_core.launch.errors import InvalidArguments
from accel_core.launch.options import Options
from accel_core.launch.plan import Program


def make(options: Options) -> Program:
    """Return the program of the command line."""
    python = () if options.no_python else (sys.executable, "-u", *(("-m",) if options.module else ()))
    return Program((*python, options.script or ""), options.arguments, not options.no_local_rank)


def check(options: Options) -> None:
    """Raise `InvalidArguments` if the script or module does not exist on this host."""
    script = options.script or ""
    if "\0" in script or any("\0" in argument for argument in options.arguments):
        raise _missing("an argument with a NUL character", "arguments without it")
    if options.module:
        top = script.partition(".")[0]
        # Of a module of a package only the package is looked for: finding more would import it.
        if not top or not (top in sys.builtin_module_names or _finds(top)):
            raise _missing(
                f"no module {top!r} in {os.getcwd()} or in this Python", "a module's name, for `python -m`"
            )
    elif options.no_python:
        if shutil.which(script) is None:
            raise _missing(f"{script!r} is not an executable file", "a program, with --no_python")
    elif not script or not Path(script).exists():
        raise _missing(f"{script!r} in {os.getcwd()} does not exist", "the path of a Python script")
    elif Path(script).is_dir() and not Path(script, "__main__.py").exists():
        raise _missing(f"{script!r} is a folder without __main__.py", "the path of a Python script")


def _finds(module: str) -> bool:
    finder = importlib.machinery.PathFinder
    return finder.find_spec(module, [os.getcwd(), *filter(None, sys.path)]) is not None


def _missing(found: str, expected: str) -> InvalidArguments:
    return InvalidArguments(
        what="cannot start the program", found=found, expected=expected, do="correct the path or the name"
    )
