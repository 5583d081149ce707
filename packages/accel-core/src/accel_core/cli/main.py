# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Entry of the command `accel`. Only the module of the sub-command that is called is imported."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from accel_core.__about__ import __version__
from accel_core.cli import commands
from accel_core.errors import AccelError

_INTERRUPTED = 130
_WRONG_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command; returns its exit status, 2 for wrong usage."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        status = _run(arguments)
        if sys.stdout is not None:  # None: it was closed when Python started
            sys.stdout.flush()
        return status
    except AccelError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has closed the pipe. Python's flush at exit must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="accel", description="Accelerators for DeepSpeed: what is here, and why."
    )
    parser.add_argument("--version", action="version", version=f"accel-core {__version__}")
    slots = parser.add_subparsers(metavar="command")
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    called: commands.Command | None = None
    found, remarks = commands.available()
    for name, source in sorted(found.items()):
        slot = slots.add_parser(name, help=source.summary, description=source.summary)
        if name == wanted:
            called = source.attach(slot)
    for remark in remarks:
        print(f"accel: {remark}", file=sys.stderr)
    if wanted is not None and wanted not in found and (error := commands.missing(wanted)):
        print(error, file=sys.stderr)
        return _WRONG_USAGE
    parsed = parser.parse_args(arguments)
    if called is None:
        parser.print_help()
        return _WRONG_USAGE
    return called.run(parsed)
