# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel rehearse npu:910b-64 --ranks 64 -- train.py`: whether a training job fits, before the hardware is there."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import signal
import sys
from pathlib import Path

from accel_core.cli.main import program_words
from accel_core.errors import InvalidInput
from accel_rehearse import job, page, profiles, report, search
from accel_rehearse.record import DryJob, Rehearsal

_UNITS = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "GB": 10**9}
_SMALLEST, _LARGEST = 64 << 20, 16 << 40
_MOST_RANKS, _MOST_STEPS, _MOST_TRIALS = 1 << 20, 1000, 1000
_LAUNCHERS = ("accelerate", "deepspeed", "mpirun", "srun", "torchrun")
_LAUNCHING_MODULES = (
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
    "torch.distributed.launch",
    "torch.distributed.run",
)
_WHICH = ("first", "last", "stages", "all")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Run an unchanged training script as some ranks of a job, on a device whose memory is counted and not taken."
        " Exit status: 0 the job fits, 3 it does not, 1 the program failed."
    )
    parser.add_argument(
        "device", nargs="?", help="as npu:910b-64 or cuda:h100-80 (--list shows all), or npu with --memory"
    )
    _add_options(parser)
    parser.add_argument("program", nargs=argparse.REMAINDER, help="-- and the script with its arguments")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, help="ranks of the job (default: those of a node)")
    parser.add_argument("--per-node", type=int, help="ranks of a node (default: the device's)")
    parser.add_argument(
        "--hostfile", type=Path, metavar="FILE", help="the launcher's hosts and slots, the defaults of both"
    )
    parser.add_argument("--memory", help="memory of a device, as 64GiB, in place of the profile's")
    parser.add_argument("--reserve", help="what the runtime takes of it, as 2GiB (default: the profile's)")
    parser.add_argument(
        "--rank", default="first,last,stages", help="ranks to rehearse: first, last, stages, all, or numbers"
    )
    parser.add_argument("--steps", type=int, default=3, help="steps of the optimizer (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as a page")
    parser.add_argument("--output", action="store_true", help="show the program's own output")
    parser.add_argument("--list", action="store_true", help="show the devices")
    parser.add_argument(
        "--compare", type=Path, nargs=2, metavar="FILE", help="show how two records of --json differ"
    )
    searching = parser.add_argument_group("search")
    searching.add_argument(
        "--search",
        action="store_true",
        help="find the cheapest ranks, ZeRO stage, offload and micro-batch that fit",
    )
    searching.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="WORD=VALUES",
        help="also try an option of the program, the leanest value last, as --checkpointing=off,on",
    )
    searching.add_argument("--trials", type=int, default=16, help="most rehearsals (default 16)")
    searching.add_argument("--host-memory", help="memory of a node, as 1TiB, that offload may use")


def run(args: argparse.Namespace) -> int:
    """Rehearse and report."""
    program = _split(args)
    if args.compare:
        return _compare(args.compare)
    if args.list or args.device is None:
        sys.stdout.write(_listing())
        return 0
    request = _request(args, program)
    for file in filter(None, (args.json, args.html)):
        place = file if file.exists() else file.absolute().parent
        # Before the rehearsal, whose result would be lost.
        _check(os.access(place, os.W_OK) and not file.is_dir(), str(file), "a file that can be written")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # else the rank would go on
            signal.signal(number, signal.default_int_handler)
    if args.search:
        return _search(request, args)
    rehearsal = job.rehearse(request, _say)
    _write(rehearsal, args)
    sys.stdout.write(report.terminal(rehearsal))
    return rehearsal.exit_status


def _write(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    if args.json:
        args.json.write_text(rehearsal.to_json(), encoding="utf-8")
    if args.html:
        args.html.write_text(page.html(rehearsal), encoding="utf-8")


def _search(request: DryJob, args: argparse.Namespace) -> int:
    """Search, and show what was tried; the exit status says whether anything fits."""
    _check(1 <= args.trials <= _MOST_TRIALS, f"--trials {args.trials}", f"1 to {_MOST_TRIALS} rehearsals")
    options = {}
    for text in args.vary:
        word, sign, values = text.partition("=")
        _check(
            bool(word and sign), f"--vary {text!r:.60}", "a word and its values, as --checkpointing=off,on"
        )
        options[word] = values.split(",")

    def rehearse(program: tuple[str, ...], ranks: int) -> Rehearsal:
        return job.rehearse(dataclasses.replace(request, program=program, ranks=ranks))

    result = search.Search(
        search.read(request.program, request.ranks),
        rehearse,
        options=options,
        bound=args.trials,
        host=_size("--host-memory", args.host_memory) if args.host_memory else None,
        say=_say,
    ).run()
    sys.stdout.write(search.table(result))
    if result.cheapest is not None:
        _write(result.tried[result.cheapest], args)
        return 0
    # 3 also if all fit their devices and none its host.
    return max((rehearsal.exit_status for rehearsal in result.tried.values()), default=1) or 3


def _compare(files: list[Path]) -> int:
    records = []
    for file in files:
        try:
            records.append(Rehearsal.from_json(file.read_text(encoding="utf-8"), str(file)))
        except (OSError, UnicodeDecodeError) as error:
            _check(False, f"{file}: {error}", "a record of `accel rehearse --json`")
    sys.stdout.write(report.differences(*records))
    return 0


def _split(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the script and its arguments, without the interpreter in front of it."""
    words = program_words(args.program, _add_options, args, "accel rehearse")
    if words and re.fullmatch(r"python[\d.]*", Path(words[0]).name):
        words = words[1:]
    return tuple(words)


def _request(args: argparse.Namespace, program: tuple[str, ...]) -> DryJob:
    memory = _size("--memory", args.memory) if args.memory else None
    profile = profiles.profile(args.device, memory)
    slots = _slots(args.hostfile) if args.hostfile else [profile.per_node]
    per_node = args.per_node if args.per_node is not None else max(slots)
    ranks = args.ranks if args.ranks is not None else sum(slots) if args.hostfile else per_node
    reserve = (
        _size("--reserve", args.reserve, smallest=0)
        if args.reserve
        else min(profile.reserve, profile.capacity // 4)
    )
    _check(1 <= per_node <= 64, f"--per-node {per_node}", "1 to 64 ranks a node")
    _check(1 <= ranks <= _MOST_RANKS, f"--ranks {ranks}", f"1 to {_MOST_RANKS} ranks")
    few = args.hostfile and ranks > sum(slots)
    _check(not few, f"--ranks {ranks}", f"no more than the {sum(slots)} slots of {args.hostfile}")
    _check(1 <= args.steps <= _MOST_STEPS, f"--steps {args.steps}", f"1 to {_MOST_STEPS} steps")
    _check(reserve < profile.capacity, f"--reserve {args.reserve}", "less than the device's memory")
    which = tuple(part.strip() for part in args.rank.split(","))
    for part in which:
        known = part in _WHICH or (part.isdecimal() and int(part) < ranks)
        _check(known, f"--rank {part}", f"{', '.join(_WHICH)}, or a number below {ranks}")
    _check(bool(program), "no program", "a script behind `--`, as train.py with its arguments")
    script, module = program[0], program[1] if program[0] == "-m" and len(program) > 1 else ""
    launched = Path(script).name in _LAUNCHERS or module in _LAUNCHING_MODULES
    _check(not launched, module or script, "the script without its launcher, for which --ranks stands")
    _check(bool(module) or Path(script).is_file(), f"{script!r}", "a Python script, or -m and a module")
    return DryJob(profile, program, ranks, per_node, which, reserve, args.steps, args.output)


def _slots(hostfile: Path) -> list[int]:
    """Return the slots of each host."""
    try:
        lines = [line.partition("#")[0].strip() for line in hostfile.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        lines = [str(error)]
    hosts: dict[str, int] = {}
    wrong = "" if any(lines) else "no host"
    for line in filter(None, lines):
        match = re.fullmatch(r"(\S+)\s+slots=(\d{1,7})", line)
        if not match or match[1] in hosts or not 1 <= int(match[2]) <= 64:
            wrong = wrong or line
        else:
            hosts[match[1]] = int(match[2])
    _check(
        not wrong, f"{hostfile}: {wrong:.80}", "lines as `node1 slots=8`, each host once, with 1 to 64 slots"
    )
    return list(hosts.values())


def _size(option: str, text: str, smallest: int = _SMALLEST) -> int:
    match = re.fullmatch(r"(\d{1,18}(?:\.\d+)?)\s*([KMGT]iB|GB)?", text.strip(), re.IGNORECASE)
    size = int(float(match[1]) * _UNITS[(match[2] or "").upper()]) if match else -1
    _check(
        smallest <= size <= _LARGEST, f"{option} {text!r:.40}", f"{smallest >> 20} MiB to 16 TiB, as 64GiB"
    )
    return size


def _check(holds: bool, found: str, expected: str) -> None:
    if not holds:
        raise InvalidInput(
            f"this cannot be rehearsed: {found}; expected {expected}",
            do="correct it; `accel rehearse --help` shows an example",
        )


def _say(text: str) -> None:
    sys.stderr.write(f"accel rehearse: {text}\n")
    sys.stderr.flush()


def _listing() -> str:
    rows = (f"  {each.name:14} {each.capacity / 2**30:6.1f} GiB  {each.source}" for each in profiles.PROFILES)
    return "\n".join(["devices:", *rows]) + "\n"
