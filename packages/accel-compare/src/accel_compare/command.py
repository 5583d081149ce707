# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel compare record digests -- train.py`: record a run, replay it on another device, name what differs first."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from accel_compare import difference, record
from accel_compare.difference import Compared, Difference
from accel_compare.recorder import RecorderOptions
from accel_core import processes
from accel_core.cli.main import program_words
from accel_core.data import from_data, to_data
from accel_core.errors import DOCUMENTATION, InvalidInput

_EQUAL, _FAILED, _DIFFERENT = 0, 1, 3
_MOST_ROWS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        f"Find the first operation, module or step at which two runs differ: {DOCUMENTATION}/compare.md"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    recorded = actions.add_parser(
        "record", help="run the program on the reference device, and keep its digests"
    )
    replayed = actions.add_parser("replay", help="run the program on this device, and compare with a record")
    for one, declare in ((recorded, _record_options), (replayed, _replay_options)):
        declare(one)
        one.add_argument("folder", type=Path, help="where the record is kept")
        one.add_argument("command", nargs=argparse.REMAINDER, help="-- and the program with its arguments")
    compared = actions.add_parser("runs", help="compare two records")
    _factor(compared)
    compared.add_argument("folder", type=Path, help="the record of the reference")
    compared.add_argument("other", type=Path, help="the record of the other run")


def _record_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by", choices=("module", "operation"), default="module", help="what is recorded (default: module)"
    )
    parser.add_argument(
        "--steps",
        metavar="FIRST-LAST",
        default="0-9",
        help="optimizer steps that are recorded (default: 0-9)",
    )
    parser.add_argument(
        "--module", metavar="PATTERN", action="append", default=[],
        help="only modules of such a path or class, as '*.attention' or Linear; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--limit", metavar="MIB", type=int, default=1024, help="size of a rank's file (default: 1024)"
    )
    parser.add_argument(
        "--parameters", metavar="MIB", type=int, default=0,
        help="keep the initial parameters, up to this size a rank, for replay to load (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--own-draws", action="store_true", help="a device draws its own random numbers, not the CPU's"
    )


def _replay_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--isolate", action="store_true", help="write a program of the operation that differs first"
    )
    parser.add_argument(
        "--own-parameters", action="store_true", help="do not load the initial parameters of the record"
    )
    _factor(parser)


def _factor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--factor", type=float, default=1.0, help="multiplies the bounds of rounding (default: 1)"
    )


def run(args: argparse.Namespace) -> int:
    """Record or compare; returns 0 if nothing differs, 3 if something does, 1 if the program failed."""
    if args.action == "runs":
        outcome = difference.compare(record.read(args.folder), record.read(args.other), args.factor)
        return _report(outcome, args.folder, args.other)
    command = _command(args)
    if args.action == "record":
        options = _options(args)
        status = _run(command, options)
        if status and not any(args.folder.glob("rank*.jsonl")):
            return _failed(status)
        _write(args.folder, command, options)
        ranks = record.read(args.folder)
        sys.stdout.writelines(f"rank {rank.rank}: {note}\n" for rank in ranks for note in rank.notes)
        events = sum(len(rank.events) for rank in ranks)
        size = sum(file.stat().st_size for file in args.folder.glob("rank*.jsonl"))
        sys.stdout.write(
            f"{events} events of {len(ranks)} ranks on {ranks[0].device}, {size / 2**20:.1f} MiB, in {args.folder}\n"
        )
        return _FAILED if status else _EQUAL
    return _replay(args, command)


def _replay(args: argparse.Namespace, command: list[str]) -> int:
    folder: Path = args.folder
    reference, options = record.read(folder), _read(folder)
    replayed = folder / "replay"
    load = str(folder.resolve()) if options.keep and not args.own_parameters else ""
    options = replace(options, folder=str(replayed.resolve()), keep=0, load=load)
    if args.isolate and not options.operations:
        raise InvalidInput(
            f"no operation can be isolated: {folder} is a record by module",
            do=f"accel compare record --by operation {folder} -- …",
        )
    status = _run(command, options)
    if status and not any(replayed.glob("rank*.jsonl")):
        return _failed(status)
    outcome = difference.compare(reference, record.read(replayed), args.factor)
    result = _report(outcome, folder, replayed)
    if outcome.first is not None and args.isolate:
        _isolate(outcome.first, command, options)
    return _FAILED if status and not result else result


def _failed(status: int) -> int:
    sys.stderr.write(f"accel compare: the program ended with status {status} before anything was recorded\n")
    return _FAILED


#: Runs one operation on two devices, with the inputs on which they differed.
_PROGRAM = '''"""{what}
found by `accel compare`: relative difference {error:.2g}, bound {bound:.2g} ({reason})"""
import sys

import torch
from torch.utils._pytree import tree_leaves, tree_map

name, args, kwargs = torch.load("{inputs}", weights_only=True)
packet, overload = name.split(".")[1:]
operation = getattr(getattr(torch.ops.{namespace}, packet), overload)


def run(device):
    def on(value):
        return value.to(device, copy=True) if isinstance(value, torch.Tensor) else (
            torch.device(device) if isinstance(value, torch.device) else value)
    here, named = tree_map(on, args), tree_map(on, kwargs)
    results = operation(*here, **named)
    return [x.cpu() for x in tree_leaves([results, here, named]) if isinstance(x, torch.Tensor)]


device = sys.argv[1] if sys.argv[1:] else torch.accelerator.current_accelerator().type
for n, (cpu, other) in enumerate(zip(run("cpu"), run(device))):
    error = (cpu.double() - other.double()).norm() / cpu.double().norm().clamp_min(1e-300)
    print(f"{{name}} tensor {{n}} {{list(cpu.shape)}} {{cpu.dtype}}: cpu and {{device}} differ by {{error:.3g}}")
'''


def _isolate(first: Difference, command: list[str], options: RecorderOptions) -> None:
    """Run the program again to keep the inputs of the operation, and write the program that shows it."""
    into = Path(options.folder, "isolated")
    _run(command, replace(options, folder=str(into), capture=first.key))
    inputs = into / f"rank{first.rank}.pt"
    if not inputs.exists():
        sys.stdout.write("it is not a single operation: there is nothing to isolate\n")
        return
    program = inputs.with_name("isolate.py")
    text = _PROGRAM.format(
        what=f"{first.key.name}, {first.key}", error=first.error, bound=first.bound, reason=first.reason,
        inputs=inputs.name, namespace=first.key.name.partition(".")[0],
    )  # fmt: skip
    program.write_text(text, encoding="utf-8")
    sys.stdout.write(f"the operation alone: cd {program.parent} && python {program.name}\n")
    processes.run([sys.executable, program.name], cwd=program.parent, stdin=None, stdout=None, stderr=None)


def _command(args: argparse.Namespace) -> list[str]:
    """Return the command line that runs the program."""
    declare = _record_options if args.action == "record" else _replay_options
    words = program_words(args.command, declare, args, f"accel compare {args.action}")
    if not words:
        raise InvalidInput(
            "there is nothing to run: no program behind the folder",
            do=f"accel compare {args.action} {args.folder} -- train.py",
        )
    script = words[0].endswith(".py") or words[0] == "-m"
    return [sys.executable, *words] if script else list(words)


def _options(args: argparse.Namespace) -> RecorderOptions:
    first, _, last = args.steps.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal() and args.limit > 0 and args.parameters >= 0):
        raise InvalidInput(
            f"the run cannot be recorded: --steps {args.steps} --limit {args.limit} --parameters "
            f"{args.parameters}; expected steps as 0-9 or 5, a limit above 0, and no negative size",
            do="correct the option",
        )
    return RecorderOptions(
        str(args.folder.resolve()), args.by == "operation", int(first), int(last or first), tuple(args.module),
        args.limit << 20, not args.own_draws, keep=args.parameters << 20,
    )  # fmt: skip


def _run(command: list[str], options: RecorderOptions) -> int:
    """Run the program with the recorder in each of its processes; returns its status, 130 after Ctrl-C."""
    if (on := os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")) != "1":  # torch loads the recorder
        raise InvalidInput(f"the run cannot be recorded: TORCH_DEVICE_BACKEND_AUTOLOAD={on}", do="unset it")
    folder = Path(options.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if re.fullmatch(r"rank\d+(\.\d+)?\.(jsonl|pt)", old.name):
                old.unlink()
        # Compiled code has no modules and no operations to record.
        variables = {"ACCEL_COMPARE": json.dumps(to_data(options)), "TORCHDYNAMO_DISABLE": "1"}
        return processes.run(
            command, grace=math.inf, env=os.environ | variables, stdin=None, stdout=None, stderr=None
        ).returncode
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        raise InvalidInput(
            f"the run cannot be recorded: {type(error).__name__}: {error}",
            do="correct the command or choose another folder",
        ) from error


def _write(folder: Path, command: list[str], options: RecorderOptions) -> None:
    versions = {name: importlib.metadata.version(name) for name in ("torch", "accel-compare")}
    content = {"schema": record.SCHEMA, "command": command, "versions": versions, "options": to_data(options)}
    (folder / "record.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _read(folder: Path) -> RecorderOptions:
    """Return how a record was made."""
    try:
        plain = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        return from_data(RecorderOptions, plain["options"], "options")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidInput(
            f"{folder} cannot be replayed: {f'{type(error).__name__}: {error}'[:200]}",
            do="record the run again",
        ) from error


def _report(outcome: Compared, reference: Path, found: Path) -> int:
    if not outcome.compared:
        raise InvalidInput(
            f"{reference} and {found} cannot be compared: no event that both have",
            do="record the program again, with the same arguments but for the device",
        )
    lines = [f"{outcome.compared} events compared, {len(outcome.unmatched)} only in one run", *outcome.notes]
    lines += difference.describe(outcome.first) if outcome.first else ["nothing differs beyond rounding"]
    lines += [difference.describe_nearest(outcome.nearest)] if outcome.nearest else []
    lines += _table(outcome)
    (found / "compare.json").write_text(json.dumps(_plain(outcome), indent=1) + "\n", encoding="utf-8")
    sys.stdout.write("\n".join([*lines, f"written: {found / 'compare.json'}"]) + "\n")
    return _DIFFERENT if outcome.first else _EQUAL


def _table(outcome: Compared) -> list[str]:
    """Return the largest errors, by place: the first step at which there is one, and the last."""
    rows = [
        (max(steps.values()), place, steps) for place, steps in outcome.errors.items() if any(steps.values())
    ]
    rows.sort(key=lambda row: -row[0])
    return [
        f"  {phase:10} {where:50.50}  "
        + "  ".join(f"step {n} {error:.1e}" for n, error in sorted(steps.items())[:4])
        for _, (phase, where), steps in rows[:_MOST_ROWS]
    ]


def _plain(outcome: Compared) -> dict[str, Any]:
    first, nearest = (
        one and {**asdict(one), "key": one.key._asdict(), "text": difference.describe(one)}
        for one in (outcome.first, outcome.nearest)
    )
    errors = [
        {"phase": phase, "where": where, "by_step": steps} for (phase, where), steps in outcome.errors.items()
    ]
    plain = {"schema": record.SCHEMA, "first": first, "nearest": nearest, "compared": outcome.compared,
             "errors": errors, "only_in_one": list(map(str, outcome.unmatched)), "notes": outcome.notes}  # fmt: skip
    # JSON has no Infinity.
    found: dict[str, Any] = json.loads(json.dumps(plain), parse_constant=str)
    return found
