# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Entry of the command `accel`, and its sub-commands: core's own, and those that other packages add by entry point.

A package adds one as ::

    [project.entry-points."accel.commands"]
    sim = "accel_sim.cli"

where the object, or module, has `add_arguments(parser)` and `run(args) -> int`. It is imported only when it
is called, so that a broken one does not affect the others. The first line of the module's docstring is an example in
backticks, ": ", and the summary in `accel --help`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import errno
import functools
import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from accel_core.__about__ import __version__
from accel_core.errors import AccelError, InvalidCommand
from accel_core.install import pip_install
from accel_core.processes import stdout_to_stderr
from accel_core.vendor import declaring_package, distribution_version, resolve

ENTRY_POINT_GROUP = "accel.commands"


class Command(Protocol):
    """One sub-command: it declares its options, runs and returns the exit status."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace) -> int: ...


@dataclass(frozen=True)
class Origin:
    """A declared sub-command: dotted name of its module or object, and the package that declares it."""

    target: str
    package: str = "accel-core"

    @functools.cached_property
    def texts(self) -> tuple[str, str]:
        """Example and summary, from the docstring of the module, which is not imported."""
        try:
            spec = importlib.util.find_spec(self.target.partition(":")[0])
            source = Path(str(spec and spec.origin)).read_text(encoding="utf-8")
            document = ast.get_docstring(ast.parse(source)) or ""
        except (Exception, SystemExit):  # of a package above it
            document = ""
        example, _, summary = document.partition("\n")[0].replace("`", "").rpartition(": ")
        summary = summary.rstrip(".") or f"from the package {self.package}"
        return example and f"Example: {example}", summary

    def attach(self, parser: argparse.ArgumentParser) -> Command:
        """Import the sub-command and add its options to the parser; raises `InvalidCommand`."""
        try:
            command: Any = resolve(self.target)
            missing = [
                part for part in ("add_arguments", "run") if not callable(getattr(command, part, None))
            ]
            if missing:
                raise self._invalid(f"{type(command).__name__} without {' and '.join(missing)}")
            command.add_arguments(parser)
        except InvalidCommand:
            raise
        except ModuleNotFoundError as error:
            raise self.lacking(error) or self._invalid(f"{type(error).__name__}: {error}") from error
        except (Exception, SystemExit) as error:
            raise self._invalid(f"{type(error).__name__}: {error}") from error
        return cast("Command", command)

    def lacking(self, error: ModuleNotFoundError) -> InvalidCommand | None:
        """Return the error for a module that is not installed; None if none of our packages requires it."""
        name = (error.name or "").partition(".")[0].lower()
        for requirement in (*_requirements(self.package), *_requirements("accel-core")):
            distribution = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
            if distribution.lower().replace("-", "_") == name:
                return InvalidCommand(
                    f"this sub-command of {self.package} needs {distribution}: {error} (from {self.target})",
                    do=pip_install(requirement),
                )
        return None

    def _invalid(self, found: str) -> InvalidCommand:
        return InvalidCommand(
            f"the sub-command of {self.package} cannot be used: {found} (from {self.target}); expected an "
            "object with add_arguments(parser) and run(args) -> int",
            do=f"upgrade or remove it: pip uninstall {self.package}",
        )


def _requirements(package: str) -> list[str]:
    """Return what an installed package requires, as `rich>=13`; without the requirements of its extras."""
    try:
        found = importlib.metadata.requires(package) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [each.replace(" ", "") for each in found if "extra ==" not in each]


_OWN = {
    "doctor": Origin("accel_core.cli.doctor.command"),
    "env": Origin("accel_core.cli.variables"),
    "explain": Origin("accel_core.cli.explain"),
    "ops": Origin("accel_core.cli.ops.command"),
}
#: Sub-commands that other packages of this project add.
_ELSEWHERE = {
    "io": "accel-ops",
    "launch": "accel-launch",
    "compare": "accel-compare",
    "new-vendor": "accel-testkit",
    "port": "accel-port",
    "rehearse": "accel-rehearse",
    "sim": "accel-sim",
    "verify": "accel-testkit",
    "zero": "accel-zero",
}
#: Former names of sub-commands, which still work.
_FORMER = {"ops profile": ("zero", "profile")}


def missing(name: str) -> InvalidCommand | None:
    """Return the error for a sub-command of a package that is not installed; None if no package of ours adds it."""
    package = _ELSEWHERE.get(name)
    if package is None:
        return None
    version = distribution_version(package)
    return InvalidCommand(
        f"`accel {name}` needs {package}: "
        f"{f'{package} {version} without it' if version else f'{package} is not installed'}",
        do=pip_install(package, options="--upgrade" if version else ""),
    )


def available() -> tuple[dict[str, Origin], list[str]]:
    """Return the sub-commands by name, and a remark for each duplicate. Imports none of them."""
    found = dict(_OWN)
    remarks = []
    for point in sorted(
        importlib.metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda p: (p.name, p.value)
    ):
        package = declaring_package(point)[0]
        source = Origin(point.value, package)
        former = found.setdefault(point.name, source)
        if former != source:
            remarks.append(
                f"the command {point.name!r} of {source.package} is left out: {former.package} has it"
            )
    return found, remarks


_INTERRUPTED = 130
_WRONG_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command; returns its exit status, 2 for wrong usage."""
    arguments = sys.argv[1:] if arguments is None else arguments
    former = " ".join(arguments[:2])
    arguments = [*_FORMER.get(former, arguments[:2]), *arguments[2:]]
    if sys.stdout is None:  # it was closed when Python started
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    with contextlib.suppress(AttributeError):  # not a terminal or a file
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except AccelError as error:
        print(error, *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as error:
        # The reader (`| head`) has closed the pipe, the disk is full, or there is no temporary folder.
        temporary = "temporary directory" in str(error)
        if not temporary and error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EIO):
            raise
        if error.errno != errno.EPIPE:
            print(f"accel: {error}", file=sys.stderr)
        # Python's flush at exit must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="accel",
        description="Accelerators for DeepSpeed: what is here, and why.",
        epilog="Exit status: 0 success, 1 a failure or a problem that was found, 2 wrong usage.",
    )
    parser.add_argument("--version", action="version", version=f"accel-core {__version__}")
    slots = parser.add_subparsers(metavar="command")
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    called: Command | None = None
    found, remarks = available()
    for name, source in sorted(found.items()):
        example, summary = source.texts
        slot = slots.add_parser(name, help=summary, description=summary, epilog=example)
        if name == wanted:
            called = source.attach(slot)
    for remark in remarks:
        print(f"accel: {remark}", file=sys.stderr)
    if wanted is not None and wanted not in found and (error := missing(wanted)):
        print(error, file=sys.stderr)
        return _WRONG_USAGE
    parsed = parser.parse_args(arguments)
    if called is None:
        parser.print_help()
        return _WRONG_USAGE
    try:
        return called.run(parsed)
    except ModuleNotFoundError as error:  # of an import that this command makes when it needs it
        raise found[str(wanted)].lacking(error) or error from error


def program_words(
    words: Sequence[str],
    declare: Callable[[argparse.ArgumentParser], None],
    args: argparse.Namespace,
    command: str,
) -> list[str]:
    """Return the command line of the program with which a command ends: `accel sim npu --devices 1 -- python train.py`.

    The options in front of it, which argparse does not read, are parsed here.

    words:   what argparse.REMAINDER has taken behind the command's own argument.
    declare: declares the options that may be among them; their values go to `args`.
    """
    words = list(words)
    if words and words[0].startswith("-") and words[0] not in ("--", "-m"):
        at = words.index("--") if "--" in words else len(words)
        parser = argparse.ArgumentParser(prog=command)
        declare(parser)
        parser.add_argument("program", nargs=argparse.REMAINDER)
        words = [*parser.parse_args(words[:at], namespace=args).program, *words[at:]]
    # The first `--` is ours; a later one is the program's.
    return words[words[:1] == ["--"] :]


def seconds(text: str) -> float:
    """Return a time limit, for argparse; raises ValueError for what is none."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


@contextlib.contextmanager
def working(on: str, quiet: bool = False) -> Iterator[None]:
    """Show what a command is working on while it imports torch or waits for child processes.

    On standard error, which is a terminal in `accel doctor | less`, too.
    """
    from rich.console import Console  # not needed to run most commands

    console = Console(stderr=True, highlight=False)
    with (
        stdout_to_stderr(),
        console.status(on) if console.is_terminal and not quiet else contextlib.nullcontext(),
    ):
        yield
