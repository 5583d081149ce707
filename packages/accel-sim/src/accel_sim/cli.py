# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel sim npu -- python train.py`: run a program on a simulated device of that vendor."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from typing import NoReturn

from accel_core.cli.main import program_words
from accel_sim import behaviours, build, real_runtime, stub_packages, vendors

LIMITS = (
    "A simulated device proves wiring, contracts and arithmetic. It says nothing about speed, about the vendor's"
    " driver, compiler and kernels, or about what happens asynchronously."
)

#: Options of simulated devices.
_MODES = ("behaviour", "race", "deferred", "like_hardware", "fail")
#: Exit statuses of a shell.
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = f"Run a program as if on an accelerator. {LIMITS}"
    parser.add_argument(
        "device", nargs="?", help="its key, or a JSON file that describes it (--list shows ours)"
    )
    _add_options(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the program with its arguments")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--devices", type=int, help="number of devices (default 2; 1 with --like-hardware)")
    parser.add_argument("--memory", help="memory of each device, as 8GiB (default 16GiB)")
    parser.add_argument("--behaviour", action="append", default=[], help="a vendor behaviour to switch on")
    parser.add_argument(
        "--fail", action="append", default=[], help="an operator that fails on the device, as _fused_adamw_"
    )
    parser.add_argument(
        "--race", action="store_true", help="unordered accesses to the same memory raise DataRace"
    )
    parser.add_argument(
        "--deferred",
        action="store_true",
        help="asynchronous copies and collectives complete as late as allowed",
    )
    parser.add_argument(
        "--like-hardware",
        action="store_true",
        help="without what holds only for simulated devices: exact sums, memory of its own, errors at once",
    )
    parser.add_argument(
        "--runtime",
        metavar="MODULE",
        help="the vendor's own runtime, which has to be installed, on an emulated driver: torch_npu",
    )
    parser.add_argument("--list", action="store_true", help="show devices and behaviours")


def run(args: argparse.Namespace) -> int:
    """Build the device if need be, and replace this process by the program; returns only without a program."""
    command = program_words(args.command, _add_options, args, "accel sim")
    if args.list or args.device is None:
        sys.stdout.write(_listing())
        return 0
    size = {"devices": args.devices, "memory": args.memory}
    modes = {name: getattr(args, name) for name in _MODES}
    if args.runtime:
        given = [f"--{name.replace('_', '-')}" for name, value in modes.items() if value]
        environment = real_runtime.environment(args.device, args.runtime, modes=given, **size)
    else:
        environment = stub_packages.environment(args.device, **size, **modes)
    if command and shutil.which(command[0], path=environment.get("PATH")) is None:
        sys.stderr.write(f"accel sim: {command[0]}: not found, or not executable\n")
        return _NOT_FOUND
    library = None if args.runtime else build.library()
    if not command:
        sys.stdout.write(f"{library or args.runtime}\n")
        return 0
    try:
        _become(command, environment)
    except OSError as error:
        sys.stderr.write(f"accel sim: {command[0]}: {error.strerror}\n")
        return _NOT_EXECUTABLE


def _become(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process by the program: signals, terminal and exit status are the program's own."""
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    os.execvpe(command[0], command, environment)


def _listing() -> str:
    lines = [LIMITS, "", "devices:"]
    for vendor in vendors.VENDORS:
        lines.append(f"  {vendor.key:5} {vendor.device_name}, collectives {vendor.collectives}")
    lines += ["", "behaviours:"]
    lines += [f"  {behaviour.name:22} {behaviour.sentence}" for behaviour in behaviours.BEHAVIOURS]
    return "\n".join(lines) + "\n"
