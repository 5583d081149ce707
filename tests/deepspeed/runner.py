# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Run DeepSpeed's own unit tests with its in-tree backends and with ours; see docs/results/deepspeed-tests.md.

`ACCEL_DEEPSPEED_TESTS=CHECKOUT python tests/deepspeed/runner.py run --work FOLDER [--accel npu] [--subset adam]`,
then `python tests/deepspeed/runner.py record --work FOLDER` writes the page.
"""

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from subprocess import STDOUT, TimeoutExpired

from accel_core import processes
from accel_testkit.verify.facts import processor

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
SIDES = ("stock", "ours")
#: The accelerator npu on the unchanged torch_npu and an emulated CANN, not on the simulated npu.
REAL = "torch_npu"
_PYTEST = [sys.executable, "-m", "pytest", "-p", "recorder", "-p", "no:cacheprovider", "-q"]
PAGE = HERE.parents[1] / "docs" / "results" / "deepspeed-tests.md"


def subsets() -> dict:
    return tomllib.loads((HERE / "subsets.toml").read_text(encoding="utf-8"))


def known() -> list[dict]:
    return tomllib.loads((HERE / "known.toml").read_text(encoding="utf-8"))["known"]


def excuse(row: dict, accel: str, side: str) -> dict | None:
    """Return the entry of the table that explains a failure."""
    return next(
        (
            entry
            for entry in known()
            if fnmatchcase(row["test"].replace("[", "("), entry["tests"].replace("[", "("))
            and accel in entry.get("on", [accel])
            and side in entry.get("sides", SIDES)
            and entry.get("says", "") in row["reason"]
        ),
        None,
    )


def unpack(work: Path) -> str:
    """Put the checkout's tests below `work`, without DeepSpeed next to them; return which they are."""
    note = work / "checkout.txt"
    if not note.exists():
        checkout, target = Path(os.environ["ACCEL_DEEPSPEED_TESTS"]), work / "checkout"
        target.mkdir(parents=True)
        tests = _git(checkout, "archive", "--prefix=tests/", "HEAD:tests")
        subprocess.run(["tar", "-x", "-C", target], input=tests, check=True)
        version, commit = (
            (checkout / "version.txt").read_text(),
            _git(checkout, "rev-parse", "--short", "HEAD"),
        )
        note.write_text(f"the tests of {version.strip()} ({commit.decode().strip()})", encoding="utf-8")
    return note.read_text(encoding="utf-8")


def _git(checkout: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", checkout, *arguments], stdout=subprocess.PIPE, check=True).stdout


def run(work: Path, name: str, accel: str, side: str) -> list[dict]:
    """Run a subset in a process group of its own, end the group at its limit, and return a row for each test."""
    subset = subsets()[name]
    record = work / f"{side}-{accel}-{name}.part"  # until it is complete
    record.write_text("", encoding="utf-8")
    with record.with_suffix(".log").open("w", encoding="utf-8") as log:
        options = ["--continue-on-collection-errors", *subset.get("options", [])]
        try:
            processes.run(
                [*_device(accel), *_PYTEST, *options, *subset["paths"]],
                subset["seconds"],
                cwd=work / "checkout" / "tests",
                env=_environment(record, accel, side, subset["seconds"]),
                stdout=log,
                stderr=STDOUT,
                start_new_session=True,
            )
            over = ""
        except TimeoutExpired:
            over = f"not finished after {subset['seconds']} s"
    if over or not record.stat().st_size:
        row = {"test": name, "outcome": "failed", "reason": over or "no test ran: see the log", "seconds": 0}
        with record.open("a", encoding="utf-8") as rows:
            rows.write(json.dumps(row) + "\n")
    return read(record.rename(record.with_suffix(".jsonl")))


def _device(accel: str) -> list[str]:
    simulated = ["npu", "--runtime", REAL] if accel == REAL else [accel]
    return [] if accel == "cpu" else [sys.executable, "-m", "accel_core.cli", "sim", *simulated, "--"]


def _environment(record: Path, accel: str, side: str, seconds: int) -> dict[str, str]:
    environment = {
        **os.environ,
        "DEEPSPEED_TESTS_RECORD": str(record.absolute()),
        "DS_ACCELERATOR": "npu" if accel == REAL else accel,
        "DS_UNITTEST_TIMEOUT": str(seconds // 4),
        "OMP_NUM_THREADS": "1",
        "PATH": os.pathsep.join(
            [str(Path(sys.executable).parent), os.environ["PATH"]]
        ),  # tests call `deepspeed`
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
    }
    if side == "stock":
        environment["ACCEL_BRIDGE"] = "0"
    if accel in ("mlu", "sdaa"):
        environment["CUDA_VISIBLE_DEVICES"] = (
            "0,1"  # DeepSpeed's tests know no tool that counts their devices
        )
    if accel == "cpu":
        environment["LOCAL_SIZE"] = "2"  # by it DeepSpeed's CPU accelerator counts its devices
    return environment


def read(record: Path) -> list[dict]:
    """Return the last row of each test."""
    rows = map(json.loads, record.read_text(encoding="utf-8").splitlines())
    return list({row["test"]: row for row in rows}.values())


def page(work: Path, accels: list[str] | None = None) -> str:
    """Return the page of the runs in a folder, of all accelerators or of these."""
    results = {record.stem: read(record) for record in work.glob("*.jsonl")}
    lines = [
        f"# DeepSpeed's own unit tests{' on ' + ', '.join(accels) if accels else ''}",
        "",
        f"DeepSpeed {importlib.metadata.version('deepspeed')}, torch {importlib.metadata.version('torch')};"
        f" {unpack(work)}. Made by `tests/deepspeed/runner.py` on {processor()}: some tests skip fp16 by it.",
        "",
        "Stock is DeepSpeed with its in-tree backend (`ACCEL_BRIDGE=0`), ours the same program with our packages.",
        "`cpu` is the real CPU with two ranks. `torch_npu` is the real one on an [emulated CANN](../emulated-cann.md).",
        "The others are [simulated](../simulated-devices.md): no accelerator was here.",
        "The columns of stock and ours have tests passed / failed / skipped.",
        "Worse: passed with stock, failed with ours. Gained: passed with ours, skipped or failed with stock.",
        "",
        "| subset | accelerator | stock | ours | worse | gained |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    failures: dict[tuple[str, str], Counter] = {}
    absent = []
    for name, subset in subsets().items():
        for accel in [accel for accel in subset["on"] if accel in (accels or [accel])]:
            sides = {side: results.get(f"{side}-{accel}-{name}") for side in SIDES}
            if any(rows is not None for rows in sides.values()):
                lines.append(_line(name, accel, **sides))
            else:
                absent.append(f"{name} on {accel}")
            for side, rows in sides.items():
                for row in rows or []:
                    if row["outcome"] == "failed":
                        entry = excuse(row, accel, side) or {
                            "whose": "**unexplained**",
                            "reason": row["reason"],
                        }
                        failures.setdefault((entry["whose"], entry["reason"]), Counter())[
                            f"{accel}, {side}"
                        ] += 1
    lines += ["", f"Not run: {', '.join(absent) or 'nothing'}."]
    lines += [
        "",
        "## Failures, each with its reason",
        "",
        "| whose | reason | tests |",
        "| --- | --- | --- |",
    ]
    for (whose, reason), where in sorted(failures.items()):
        text = reason.replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {whose} | {text} | {'; '.join(f'{k}: {n}' for k, n in sorted(where.items()))} |")
    return "\n".join(lines) + "\n"


def _line(name: str, accel: str, stock: list[dict] | None, ours: list[dict] | None) -> str:
    cells = [_counts(stock), _counts(ours), "", ""]
    if stock is not None and ours is not None:
        before, after = ({row["test"]: row["outcome"] for row in rows} for rows in (stock, ours))
        passed = {test for test, outcome in before.items() if outcome == "passed"}
        cells[2] = str(sum(after.get(test) == "failed" for test in passed))
        cells[3] = str(sum(outcome == "passed" and test not in passed for test, outcome in after.items()))
    return f"| {name} | {accel} | {' | '.join(cells)} |"


def _counts(rows: list[dict] | None) -> str:
    if rows is None:
        return "not run"
    counts = Counter(row["outcome"] for row in rows)
    return " / ".join(str(counts[outcome]) for outcome in ("passed", "failed", "skipped"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "record"])
    parser.add_argument("--work", type=Path, required=True, help="the folder of the runs' records")
    parser.add_argument("--accel", action="append", help="only on these")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page that is recorded")
    parser.add_argument("--subset", action="append", choices=subsets(), help="only these")
    parser.add_argument("--side", action="append", choices=SIDES, help="only with this")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    print(unpack(args.work))
    if args.command == "record":
        args.page.write_text(page(args.work, args.accel), encoding="utf-8")
        return 0
    unexplained = 0
    for name in args.subset or subsets():
        for accel in subsets()[name]["on"]:
            for side in (args.side or SIDES) if accel in (args.accel or [accel]) else ():
                rows = run(args.work, name, accel, side)
                failed = [row for row in rows if row["outcome"] == "failed"]
                new = [row for row in failed if side == "ours" and not excuse(row, accel, side)]
                unexplained += len(new)
                print(
                    f"{name} on {accel}, {side}: {_counts(rows)}",
                    *(f"\n  {r['test']}: {r['reason']}" for r in new),
                )
                sys.stdout.flush()
    return 1 if unexplained else 0


if __name__ == "__main__":
    raise SystemExit(main())
