# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command `accel launch`, and `python -m accel_core.launch`."""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
import sys

from accel_core.api import CURRENT
from accel_core.launch import options, prepare
from accel_core.launch.plan import Plan
from accel_core.launch.run import run as carry_out

add_arguments = options.add_arguments


def run(args: argparse.Namespace) -> int:
    """Print the plan or the job of a command line, or carry it out; returns the exit status.

    Raises the errors of `accel_core.launch.errors`.
    """
    _open_standard_streams()
    given = options.options(args)
    with contextlib.nullcontext() if given.emit or given.dry_run else CURRENT.quiet():
        plan = prepare.load(given) if given.plan else prepare.make(given)
    if given.emit or given.dry_run:
        return _print(plan, given)
    for note in plan.notes if given.log_level in ("debug", "info", "warning") else ():
        sys.stderr.write(f"accel launch: {note}\n")
    return carry_out(plan, given)


def _open_standard_streams() -> None:
    """Open /dev/null in place of a standard stream that the caller has closed: other files would get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(
                os.open(os.devnull, os.O_RDWR), True
            )  # the lowest free number, which is this one


def _announce(names: list[str], where: str) -> None:
    """Name what looks like a secret before it is written; a file that this is written to becomes private."""
    sys.stderr.write(f"accel launch: {where} has what looks like secrets: {', '.join(names)}\n")
    with contextlib.suppress(OSError, ValueError):
        if stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode):
            os.fchmod(sys.stdout.fileno(), 0o600)


def _print(plan: Plan, given: options.Options) -> int:
    # Imported here: a job that is started at once shall not wait for rich.
    from accel_core.launch import emit, table

    if (given.emit or given.json) and (names := plan.secrets()):
        _announce(names, "a Secret" if given.emit in options.IN_CONTAINERS else "this output")
    if given.emit:
        sys.stdout.write(emit.render(plan, given))
    else:
        sys.stdout.write(plan.to_json() + "\n" if given.json else table.render(plan))
    return 0
