# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The sub-commands of `accel`: core's own, and those that other packages add by entry point.

A package adds one as ::

    [project.entry-points."accel.commands"]
    sim = "accel_testkit.sim:COMMAND"

where the object, or module, has `add_arguments(parser)` and `run(args) -> int`. It is imported only when it
is called, so that a broken one does not affect the others.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import pkgutil
from dataclasses import dataclass
from typing import Any, Protocol

from accel_core.cli.entry_points import declaring_package
from accel_core.errors import InvalidCommand

ENTRY_POINT_GROUP = "accel.commands"


class Command(Protocol):
    """One sub-command."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its options."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Run the sub-command; returns the exit status."""
        ...


@dataclass(frozen=True)
class Source:
    """A declared sub-command: dotted name, summary in one line, and the package that declares it."""

    target: str
    summary: str
    package: str = "accel-core"

    def attach(self, parser: argparse.ArgumentParser) -> Command:
        """Import the sub-command and add its options to the parser; raises `InvalidCommand`."""
        try:
            command: Any = pkgutil.resolve_name(self.target)
            missing = [
                part for part in ("add_arguments", "run") if not callable(getattr(command, part, None))
            ]
            if missing:
                raise self._invalid(f"{type(command).__name__} without {' and '.join(missing)}")
            command.add_arguments(parser)
        except InvalidCommand:
            raise
        except (Exception, SystemExit) as error:
            raise self._invalid(f"{type(error).__name__}: {error}") from error
        loaded: Command = command
        return loaded

    def _invalid(self, found: str) -> InvalidCommand:
        return InvalidCommand(
            what=f"the sub-command of {self.package} cannot be used",
            found=f"{found} (from {self.target})",
            expected="an object with add_arguments(parser) and run(args) -> int",
            do=f"upgrade or remove it: pip uninstall {self.package}",
        )


_OWN = {
    "doctor": Source(
        "accel_core.cli.doctor.command", "show every accelerator, which one a run would use, and why"
    ),
    "ops": Source(
        "accel_core.cli.ops.command", "list, build or test the ops of the accelerator that a run would use"
    ),
    "env": Source("accel_core.cli.variables", "list the environment variables and their present values"),
}


def available() -> tuple[dict[str, Source], list[str]]:
    """Return the sub-commands by name, and a remark for each duplicate. Imports none of them."""
    found = dict(_OWN)
    remarks = []
    for point in sorted(
        importlib.metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda p: (p.name, p.value)
    ):
        source = Source(
            point.value, f"from the package {declaring_package(point)[0]}", declaring_package(point)[0]
        )
        former = found.setdefault(point.name, source)
        if former != source:
            remarks.append(
                f"the command {point.name!r} of {source.package} is left out: {former.package} has it"
            )
    return found, remarks
