# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""File I/O: our engines, DeepSpeed's op and the limit of the machine, in turn, in one run.

DeepSpeed's op is compiled when it is not in torch's cache of extensions (5 to 25 minutes; needs libaio's headers). What
follows takes some 10 minutes on an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # ahead of torch, whose entry point reads them
    os.environ |= {
        "ACCEL_BRIDGE": "0",  # DeepSpeed's builders stay its own
        "DS_ACCELERATOR": "cpu",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # torch looks for ninja there
    }

from accel_testkit import timing
from accel_testkit.bench.files import Contender, Limit, Op
from accel_testkit.bench.stock import own_op
from benchmarks import results

#: What is transferred: name, page-locked memory, is it a write, is the file new.
CASES = (
    ("page-locked, read", True, False, False),
    ("page-locked, overwrite", True, True, False),
    ("page-locked, new file", True, True, True),
    ("ordinary, read", False, False, False),
    ("ordinary, overwrite", False, True, False),
    ("ordinary, new file", False, True, True),
)
SMALL, FILES = 4096, 256
Row = dict[str, Any]


def say(doing: str) -> None:
    """A sign of life."""
    print(f"{time.strftime('%H:%M:%S')} {doing}", file=sys.stderr, flush=True)


def seconds(work: Callable[..., object], *arguments: object) -> tuple[float, float]:
    """Elapsed, and of the processor."""
    begin, used = time.perf_counter(), time.process_time()
    work(*arguments)
    return time.perf_counter() - begin, time.process_time() - used


def transfers(contenders: Mapping[str, Contender], folder: Path, size: int, rounds: int) -> list[Row]:
    """GB/s and CPU seconds a GB of each case: medians."""
    import torch

    locked = {name: contender.locked(size).fill_(1) for name, contender in contenders.items()}
    ordinary = torch.empty(size, dtype=torch.uint8).fill_(1)
    rows = []
    for case, is_locked, write, new in CASES:
        say(case)
        who = [name for name in contenders if is_locked or name != "limit"]

        def measure(
            name: str, is_locked: bool = is_locked, write: bool = write, new: bool = new
        ) -> tuple[float, float]:
            path = folder / name
            if new:
                path.unlink(missing_ok=True)
            elif not path.exists():
                contenders[name].transfer(locked[name], path, True)
            tensor = locked[name] if is_locked else ordinary
            return seconds(contenders[name].transfer, tensor, path, write)

        seen = timing.turns({name: partial(measure, name) for name in who}, rounds, warm_up=1)
        for name in who:
            wall, used = (statistics.median(pair[i] for pair in seen[name]) for i in (0, 1))
            rows.append(
                {"transfer": case, "by": name, "GB/s": size / 1e9 / wall, "CPU s/GB": used / (size / 1e9)}
            )
    for name in contenders:
        (folder / name).unlink()
    return rows


def small(ops: Mapping[str, Op], folder: Path, rounds: int) -> list[Row]:
    """Synchronous calls of 4 KiB: medians in microseconds."""
    tensors = {name: op.locked(SMALL).fill_(1) for name, op in ops.items()}
    rows = []
    for write in (True, False):
        calls = {
            name: partial(op.one, tensors[name], folder / f"small-{name}", write) for name, op in ops.items()
        }
        medians = timing.medians(timing.turns(_timed(calls), 100 * rounds))
        case = f"4 KiB, {'write' if write else 'read'}, microseconds"
        rows += [{"case": case, "by": name, "value": 1e6 * took} for name, took in medians.items()]
    return rows


def many(ops: Mapping[str, Op], folder: Path, rounds: int) -> list[Row]:
    """256 files of 1 MiB: GB/s."""
    tensors = {name: [op.locked(1 << 20).fill_(1) for _ in range(FILES)] for name, op in ops.items()}
    paths = [folder / f"part-{number}" for number in range(FILES)]
    rows = []
    for write in (True, False):
        calls = {name: partial(op.many, tensors[name], paths, write) for name, op in ops.items()}
        medians = timing.medians(timing.turns(_timed(calls), rounds, warm_up=1))
        case = f"{FILES} files of 1 MiB, {'overwrite' if write else 'read'}, GB/s"
        size = FILES * (1 << 20) / 1e9
        rows += [{"case": case, "by": name, "value": size / took} for name, took in medians.items()]
    return rows


def _timed(calls: Mapping[str, Callable[[], object]]) -> dict[str, Callable[[], float]]:
    return {name: partial(timing.seconds, call) for name, call in calls.items()}


def child(*arguments: object) -> Any:
    """What `benchmarks.aio_users` reports."""
    environment = {
        "ACCEL_BRIDGE": "1", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1",
        "LOCAL_SIZE": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.aio_users", *map(str, arguments)]
    done = subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def users(folder: Path, options: argparse.Namespace, has_upstream: bool) -> list[Row]:
    """FastFileWriter, ZeRO-Infinity, loading."""
    loads = [child("load") for _ in range(3)]
    rows: list[Row] = [
        {"case": "load of the op, ms", "by": "ours", "value": statistics.median(one["ms"] for one in loads)},
        {"case": "processes started by it", "by": "ours", "value": max(one["processes"] for one in loads)},
    ]
    rates = child("writer", folder, options.mib, options.rounds)
    case = "torch.save, GB/s"
    rows += [{"case": case, "by": name, "value": statistics.median(rates[name])} for name in rates]
    seen: dict[str, list[float]] = {"ours": [], "DeepSpeed": []} if has_upstream else {"ours": []}
    for _ in range(2):
        for name, times in seen.items():
            with tempfile.TemporaryDirectory(dir=folder) as own:
                op = "ours" if name == "ours" else "upstream"
                times += child("training", own, options.millions, options.rounds, op)["seconds"]
    case = f"ZeRO-Infinity, {options.millions} M parameters, seconds an iteration"
    return rows + [{"case": case, "by": name, "value": statistics.median(seen[name])} for name in seen]


def goals(rows: list[Row], other: list[Row]) -> list[Row]:
    """Each goal of the issue beside what was measured; without DeepSpeed's op, those that compare with it are open."""
    rate = {(row["transfer"], row["by"]): row["GB/s"] for row in rows}
    used = {(row["transfer"], row["by"]): row["CPU s/GB"] for row in rows}
    found = []
    for case, locked, _, _ in CASES:
        twin = case.replace("ordinary", "page-locked")
        base = rate[twin, "limit"] if locked else rate[twin, "uring"]
        name = f"{case}: GB/s ÷ {'the limit' if locked else 'page-locked'}"
        found.append(_goal(name, rate[case, "uring"] / base, ">=", 0.95 if locked else 0.85))
        found.append(_goal(f"{case}: CPU s/GB", used[case, "uring"], "<=", 0.02 if locked else 0.15))
    named = {(row["case"], row["by"]): float(row["value"]) for row in other}
    for case in dict.fromkeys(row["case"] for row in other):
        ours = named.get((case, "ours"), named.get((case, "uring")))
        theirs = named.get((case, "DeepSpeed"))
        if case == "torch.save, GB/s":
            ratio = named[case, "FastFileWriter"] / named[case, "torch.save"]
            found.append(_goal("FastFileWriter ÷ torch.save with fsync", ratio, ">=", 1.0))
        elif case.startswith(("load", "processes")):
            found.append(_goal(case, ours, "<=", 5.0 if case.startswith("load") else 0.0))
        else:
            sign, goal = (">=", 1.5) if "files" in case else ("<=", 0.75 if "ZeRO" in case else 1.0)
            found.append(
                _goal(f"{case}: ours ÷ DeepSpeed's", ours / theirs if ours and theirs else None, sign, goal)
            )
    return found


def _goal(name: str, measured: float | None, sign: str, goal: float) -> Row:
    if measured is None:
        return {"goal": name, "measured": "not measured", "wanted": f"{sign} {goal}", "met": "unknown"}
    met = measured >= goal if sign == ">=" else measured <= goal
    return {
        "goal": name,
        "measured": f"{measured:.3g}",
        "wanted": f"{sign} {goal}",
        "met": "yes" if met else "no",
    }


def main() -> int:
    """Measure and write docs/results/aio*.{md,json}."""
    parser = results.parser(__doc__, rounds=7)
    parser.add_argument("--mib", type=int, default=1024, help="size of a transfer")
    parser.add_argument("--millions", type=int, default=64, help="parameters of ZeRO-Infinity")
    parser.add_argument(
        "--folder", type=Path, help="folder on the disk to measure; default: that of temporary files"
    )
    parser.add_argument("--without-upstream", action="store_true", help="do not compile DeepSpeed's op")
    options = parser.parse_args()
    from accel_ops.op_builder import AsyncIOBuilder

    ours, (theirs, reason) = AsyncIOBuilder().load(), (None, "not compiled, by --without-upstream")
    if not options.without_upstream:
        say("DeepSpeed's op: compiled now, for many minutes, unless torch's cache of extensions has it")
        theirs, reason = own_op("AsyncIOBuilder")
    ops = {engine: Op(ours, engine) for engine in ("uring", "threads")}
    ops |= {"DeepSpeed": Op(theirs)} if theirs else {}
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name).resolve()
        rows = transfers({"limit": Limit(), **ops}, folder, options.mib << 20, options.rounds)
        say("4 KiB, and many files")
        other = small(ops, folder, options.rounds) + many(ops, folder, options.rounds)
        say("FastFileWriter and ZeRO-Infinity")
        other += users(folder, options, bool(theirs))
    _write(rows, other, options, reason)
    return 0


def _write(rows: list[Row], other: list[Row], options: argparse.Namespace, reason: str) -> None:
    text = (
        f"Medians of {options.rounds} rounds of {options.mib} MiB; in each, every contender once, with its own file. "
        "Blocks of 1 MiB, 32 in flight, one worker. `limit`: direct I/O, 8 threads, huge pages. `uring`, `threads`: "
        f"our engines. `DeepSpeed`: its op. {reason}"
    ).strip()
    results.write("aio", "File I/O", text, rows, options.out)
    text = "What stands on the transfers of [aio](aio.md), from the same run."
    results.write("aio-users", "File I/O: small and many files, and what uses it", text, other, options.out)
    text = (
        "From the run of [aio](aio.md) and [aio-users](aio-users.md), with io_uring where there is a choice."
    )
    results.write("aio-goals", "File I/O: goals", text, goals(rows, other), options.out)


if __name__ == "__main__":
    sys.exit(main())
