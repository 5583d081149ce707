# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The steps of `accel verify`: each is a process with a time limit, and leaves a row whatever happens to it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from accel_core.processes import SIGNALS, run, run_module
from accel_testkit.stock_builds import NOT_STARTED
from accel_testkit.suite.launch import read_stream, streamed, write
from accel_testkit.verify.report import CRASHED, FAILED, NOT_RUN, PASSED, TIMED_OUT, StepRow

#: Name of the environment variable with the file to which a child writes its answer.
ANSWER = "ACCEL_VERIFY_ANSWER"
#: How often checks are started; each crash costs one of them.
_STARTS = 6
_KEPT = 2000
#: Bytes after which what a step has printed is dropped, so that a driver does not fill the disk.
_MOST_PRINTED = 64 << 20
_PYTEST = (*run_module("pytest"), "-q", "-p", "no:cacheprovider", "--pyargs")


@dataclass(frozen=True)
class Step:
    """One step.

    command: of the accelerator's key, the mode and the folder for its files.
    devices: how many the step needs.
    named:   whether DS_ACCELERATOR names the accelerator to the process; else the environment is the user's.
    read:    makes the row of what the process has left, however it ended; returns (found, failures, table, wrong).
    """

    name: str
    title: str
    command: Callable[[str, str, Path], Iterable[str]]
    read: Callable[[Path], Mapping[str, Any]]
    devices: int = 0
    advice: str = ""
    named: bool = True

    def run(self, key: str, mode: str, folder: Path, limit: float, tick: Callable[[str], None]) -> StepRow:
        """Run the step in its own process group and return its row.

        limit: seconds without progress after which it is ended.
        tick:  called while it runs, with a word about how far it is.
        """
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        began = time.monotonic()
        named = {"DS_ACCELERATOR": key} if self.named else {}
        row, known = StepRow(self.name, self.title, PASSED), 0
        for again in range(_STARTS):
            command = (*self.command(key, mode, folder), *(("--resume",) if again else ()))
            status = _run(command, named, folder, limit, lambda: tick(_far(folder)))
            left = self._left(folder)
            how = _how(status, limit, incomplete=bool(left.get("incomplete")))
            if not how or left.get("begun", 0) <= known:
                break
            known = left["begun"]
            with (folder / "results.jsonl").open("a", encoding="utf-8") as lines:
                lines.write("\n" + json.dumps({"ended": f"{how}\n{last_words(folder)}"}) + "\n")
        row.seconds = round(time.monotonic() - began, 1)
        row.found, row.failures = str(left.get("found", "")), left.get("failures", [])
        row.table = left.get("table", [])
        row.state = FAILED if row.failures else PASSED
        if how:
            row.state, row.found = TIMED_OUT if status is None else CRASHED, f"{how}; {row.found}"
            reason = f"{row.state} here\n{last_words(folder)}"
            row.failures.append({"name": left.get("running") or self.title, "reason": reason})
        row.advice = self.advice if row.state != PASSED else ""
        return row

    def _left(self, folder: Path) -> dict[str, Any]:
        try:
            return dict(self.read(folder))
        except (OSError, ValueError, KeyError, TypeError) as error:
            return {"found": f"no result ({type(error).__name__})", "incomplete": True}


def _how(status: int | None, limit: float, *, incomplete: bool) -> str:
    """Return how a process ended before it was done, else nothing."""
    if status is None:
        return f"no progress for {limit:.0f} s"
    if status < 0:
        return f"died by {SIGNALS.get(-status, f'signal {-status}')}"
    return f"ended with status {status}" if incomplete else ""


def _far(folder: Path) -> str:
    """Return how far a running step is."""
    path = folder / "results.jsonl"
    lines = _parsed(path, _size(path))
    if lines and "progress" in lines[-1]:
        return str(lines[-1]["progress"])
    done = sum("id" in line for line in lines)
    return f"{done} checks" if done else "…"


@lru_cache(maxsize=1)
def _parsed(path: Path, size: int) -> list[Any]:
    """Return the lines of a file; parsed again only when its size changes."""
    return list(streamed(path)) if size else []


def not_run(step: Step, why: str) -> StepRow:
    """Return the row of a step that is left out."""
    return StepRow(step.name, step.title, NOT_RUN, found=why)


def answer(plain: Mapping[str, Any]) -> None:
    """In a child: leave the result, or what there is of it so far, for `from_answer`."""
    write(Path(os.environ[ANSWER]), plain)


def from_answer(folder: Path) -> Mapping[str, Any]:
    """Read what a child has left with `answer`."""
    found: dict[str, Any] = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return found


def from_printed(folder: Path) -> Any:
    """Read the JSON object that a command has printed, after whatever a driver printed before it."""
    text = (folder / "stdout").read_text(encoding="utf-8", errors="replace")
    return json.JSONDecoder().raw_decode(text, text.index("{\n"))[0]


def _doctor(folder: Path) -> Mapping[str, Any]:
    printed = from_printed(folder)
    failures = [
        {"name": str(problem.get("subject", "")), "reason": f"{problem['found']}; do: {problem['advice']}"}
        for problem in printed["problems"]
    ]
    notes = [
        {"note": note["code"], "found": note["found"], "do": note["advice"]} for note in printed["notes"]
    ]
    noted = f"; notes: {', '.join(note['note'] for note in notes)}" if notes else ""
    return {
        "found": f"{printed['chosen'] or 'nothing'} is chosen: {printed['how'] or printed['error']}{noted}",
        "failures": failures,
        "table": notes,
    }


def _ops(folder: Path) -> Mapping[str, Any]:
    rows = from_printed(folder)["ops"]
    failures = [{"name": r["builder"], "reason": r["reason"]} for r in rows if r["state"] == "failed"]
    table = [{"op": r["builder"], "state": r["state"], "implementation": r["reason"]} for r in rows]
    works = sum(r["state"] == "ok" for r in rows)
    return {"found": f"{works} ops load and run, of {len(rows)}", "failures": failures, "table": table}


def _suite(folder: Path) -> Mapping[str, Any]:
    """Read results as they came: of a run that was cut off, too."""
    found, running, _, failing = read_stream(folder / "results.jsonl")
    order = {name: place for place, name in enumerate(failing or ())}
    rows = sorted(found.values(), key=lambda row: order.get(row["id"], 0))
    count = Counter(row["outcome"] for row in rows)
    failed = [row for row in rows if row["outcome"] == "failed"]
    failures = [
        {"name": row["id"], "reason": row["reason"][-_KEPT:]}
        for row in failed
        if not row["reason"].startswith(NOT_STARTED)
    ]
    without = [row for row in failed if row["reason"].startswith(NOT_STARTED)]
    if without:
        reason = f"{without[0]['reason'][:_KEPT]}\n{len(without)} checks compare with it"
        failures.append({"name": "stock DeepSpeed, not the accelerator", "reason": reason})
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    return {
        "found": f"{count['passed']} passed, {count['failed']} failed{skipped}",
        "failures": failures,
        "incomplete": failing is None or not rows,
        "begun": len(rows) + bool(running),
        "running": running,
    }


def _checks(package: str, tier: str) -> Callable[[str, str, Path], Iterable[str]]:
    def command(key: str, mode: str, folder: Path) -> Iterable[str]:
        quick = ("--quick",) if mode == "quick" else ()
        results = "--results", str(folder / "results.json")
        return (*_PYTEST, f"accel_testkit.{package}", "--accel", key, "--tier", tier, *quick, *results)

    return command


_SUITE_ADVICE = "start with the first failure: it names what was found, what was expected and what to do"
STEPS = (
    Step(
        "machine", "machine and software", lambda k, m, f: run_module("accel_testkit.verify.facts"),
        from_answer, advice="the runtime does not answer: try its own tool, then `accel doctor`",
    ),
    Step(
        "doctor", "accel doctor", lambda k, m, f: (*run_module("accel_core.cli"), "doctor", "--json"),
        _doctor, advice="run `accel doctor` and follow its advice", named=False,
    ),
    Step(
        "ops", "ops load and run", lambda k, m, f: (*run_module("accel_core.cli"), "ops", "test", "--json"),
        _ops, devices=1, advice="run `accel ops test NAME` for the op that fails",
    ),
    Step("host", "conformance without a device", _checks("suite", "host"), _suite, 0, _SUITE_ADVICE),
    Step("device", "conformance on a device", _checks("suite", "device"), _suite, 1, _SUITE_ADVICE),
    Step("multi", "conformance on two devices", _checks("suite", "multi"), _suite, 2, _SUITE_ADVICE),
    Step("engine-1", "DeepSpeed on one rank", _checks("engine", "device"), _suite, 1, _SUITE_ADVICE),
    Step("engine-2", "DeepSpeed on two ranks", _checks("engine", "multi"), _suite, 2, _SUITE_ADVICE),
)  # fmt: skip


def _run(
    command: Sequence[str], named: Mapping[str, str], folder: Path, limit: float, tick: Callable[[], None]
) -> int | None:
    """Return the exit status of a step, None if it shows no progress for `limit` seconds."""
    printed = folder / "stdout", folder / "log"
    own = {"PYTHONFAULTHANDLER": "1", ANSWER: str((folder / "answer.json").absolute())}

    def progress() -> int:
        tick()
        for path in printed:
            if _size(path) > _MOST_PRINTED:
                os.truncate(path, 0)
        return sum(_size(folder / name) for name in ("results.jsonl", "answer.json"))

    # Appended, so that a file that is emptied begins again.
    with printed[0].open("ab") as out, printed[1].open("ab") as log, suppress(TimeoutExpired):
        environment = {**os.environ, **named, **own}
        return run(
            command, limit, progress, env=environment, stdout=out, stderr=log, start_new_session=True
        ).returncode
    return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def last_words(folder: Path) -> str:
    """Return the end of what a step has printed."""
    ends = ((folder / name).read_bytes()[-_KEPT:].decode("utf-8", "replace") for name in ("stdout", "log"))
    return "\n".join(filter(None, map(str.strip, ends))) or "nothing was printed"
