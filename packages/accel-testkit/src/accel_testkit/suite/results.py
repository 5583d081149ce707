# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The results of a run, check by check: a summary on the terminal, and JSON for the docs' feature matrix."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from accel_core.op_builder.names import UPSTREAM
from accel_core.simulated import RUNTIME, current
from accel_core.vendor import distribution_version
from accel_testkit.suite.launch import read_stream, write
from accel_testkit.suite.needs import public_members
from accel_testkit.suite.target import Target

#: Raised when the written file changes its meaning.
SCHEMA = 1
PROPERTY = "accel-check"
TRAIT = "accel-trait"
#: All that the vendor declares; kept by the check of the declaration.
TRAITS = "accel-traits"
#: What a check measured, as plain data: it is part of the check's row.
FIGURES = "accel-figures"
#: Operators of torch that a check called, of those that failed their own check.
OPERATORS = "accel-operators"
#: The op or method that a check is about, if its markers or parameters name one, and its place in the suite.
ABOUT = "accel-about"
#: The most basic files, whose failures explain those of other files; the rest follows in any order.
_BASIC = (
    "package", "probe", "operators", "answers", "identity", "device", "collectives", "environment", "tensors", "memory",
    "random", "streams", "pinned_memory", "graphs", "op_table", "ops",
)  # fmt: skip
_DISTRIBUTIONS = ("accel-testkit", "accel-core", "torch", "deepspeed")


def tier(item: pytest.Item) -> str:
    """Return the tier of a check: that of the function, else that of its file."""
    marker = item.get_closest_marker("tier")
    return str(marker.args[0]) if marker else ""


def describe(item: pytest.Item) -> dict[str, str]:
    """Return the id, tier and sentence of a check."""
    file, name = item.path.stem.removeprefix("test_"), item.name
    doc = getattr(getattr(item, "function", None), "__doc__", None) or ""
    return {
        "id": f"{file}.{name.removeprefix('test_')}",
        "tier": tier(item),
        "sentence": " ".join(doc.split()),
    }


@cache
def _known() -> frozenset[str]:
    return frozenset(public_members())


def about(item: pytest.Item) -> tuple[str, int, int]:
    """Return the op or method that a check names, else nothing, and its place: file and line."""
    file = item.path.stem.removeprefix("test_")
    ops = [name for marker in item.iter_markers("needs") for name in marker.args if name in UPSTREAM]
    texts = getattr(getattr(item, "callspec", None), "params", {}).values()
    methods = [text for text in texts if isinstance(text, str) and text in _known()]
    place = _BASIC.index(file) if file in _BASIC else len(_BASIC)
    line = getattr(item, "function").__code__.co_firstlineno  # noqa: B009  (an item that pytest made of a function)
    return next(iter(ops + methods), ""), place, line


def subject(check: str, named: str, message: str, operators: Sequence[str] = ()) -> str:
    """Return what a failed check is grouped by.

    The first that applies: a function that the runtime lacks; a backend that is not registered; an operator that fails
    its own check; what the check names; the first method in its message; the check itself.
    """
    if lacking := re.search(r"the accelerator needs (torch\.\w+\.\w+)", message):
        return lacking[1]
    if missing := re.search(r"Unknown backend type (\w+)|not so: '(\w+)' is one of undefined, gloo", message):
        return f"the backend {missing[1] or missing[2]}"
    if operators or check.startswith("operators."):
        return f"torch's {operators[0] if operators else check.partition('[')[2].rstrip(']')}"
    words = [word for word in re.findall(r"\w+", message.partition("\n")[0]) if word in _known()]
    return named or next(iter(words), check.partition("[")[0])


def earlier(path: Path, items: Iterable[pytest.Item]) -> dict[str, dict[str, Any]]:
    """Return the rows that a run left in FILE.jsonl. The check that did not end has failed."""
    rows, running, reason, _ = read_stream(path)
    for item in items:
        if item.nodeid.rpartition("/")[2] == running:
            row = {"outcome": "failed", "trait": "", "reason": reason or "the process ended in this check"}
            rows[describe(item)["id"]] = {**describe(item), **row}
    return rows


@dataclass
class Cause:
    """Failed checks of one op or method, the simplest first; the others may pass once it does."""

    subject: str
    checks: list[str] = field(default_factory=list)


class CalledFunctions(TorchFunctionMode):
    """Records the names of torch's functions that are called from Python on tensors of a device type."""

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self._device_type = device_type
        self.names: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record and call a function."""
        if any(isinstance(each, torch.Tensor) and each.device.type == self._device_type for each in args):
            self.names.add(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


@dataclass(eq=False)  # pytest keeps its plug-ins in sets
class RunRecorder:
    """Records a run; the worst phase of a check is its outcome."""

    target: Target
    tiers: tuple[str, ...]
    path: Path | None
    resumed: bool = False
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)
    traits: dict[str, str] = field(default_factory=dict)
    about: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    found: list[Cause] = field(default_factory=list)

    @contextmanager
    def operators_called(self, item: pytest.Item, device_type: str) -> Iterator[None]:
        """Record the operators that a check calls on a device, of those that have failed; the most complex first."""
        failed = [
            name
            for name, row in self.checks.items()
            if name.startswith("operators.") and row["outcome"] == "failed"
        ]
        if not failed or item.path.stem == "test_operators":
            yield
            return
        with CalledFunctions(device_type) as called:
            yield
        labels = dict.fromkeys(name.partition("[")[2].rstrip("]") for name in reversed(failed))
        found = [label for label in labels if called.names & {*label.split()}]
        item.user_properties.append((OPERATORS, found))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Begin the stream with the checks of the run that is resumed, and the number of the others."""
        if self.path is not None:
            self.path.with_suffix(".jsonl").unlink(missing_ok=True)
        for row in self.checks.values():
            self._stream(row)
        self._stream({"collected": len(session.items)})

    def note(self, text: str) -> None:
        """Stream the progress of a long check, for drivers that end runs without progress."""
        self._stream({"progress": text})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note which check runs, for a run that a driver ends."""
        self._stream({"running": nodeid.rpartition("/")[2]})

    def resume(self, items: list[pytest.Item]) -> set[str]:
        """Take the results of the run that was cut off; return the ids of its checks."""
        if self.path is not None and self.resumed:
            self.checks = earlier(self.path.with_suffix(".jsonl"), items)
            self.about = {describe(item)["id"]: about(item) for item in items}
        return set(self.checks)

    def _stream(self, line: dict[str, Any]) -> None:
        """Append a line to FILE.jsonl, which a run that is cut off leaves behind."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_suffix(".jsonl").open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(line) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome of one phase of a check."""
        properties: dict[str, Any] = dict(report.user_properties)
        if PROPERTY not in properties:
            return
        about = properties[PROPERTY]
        row = self.checks.setdefault(about["id"], {**about, "outcome": "passed", "trait": "", "reason": ""})
        self.about[about["id"]] = properties[ABOUT]
        if report.failed:
            row.update(outcome="failed", reason=_last_words(report))
        elif report.skipped:
            row.update(outcome="skipped", **properties.get(TRAIT, {"reason": _last_words(report)}))
        self.traits |= properties.get(TRAITS, {})
        if OPERATORS in properties:
            row["operators"] = properties[OPERATORS]
        if FIGURES in properties:
            row["figures"] = properties[FIGURES]
        if report.when == "teardown":
            self._stream(row)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Group the failures by what they are about, and write the file, if one was asked for."""
        causes: dict[str, Cause] = {}
        for name in sorted(self.checks, key=lambda name: (*self.about[name][1:], name)):
            row = self.checks[name]
            if row["outcome"] == "failed":
                row["cause"] = subject(name, self.about[name][0], row["reason"], row.get("operators", ()))
                causes.setdefault(row["cause"], Cause(row["cause"])).checks.append(name)
        self.found = [*causes.values()]
        if self.resumed and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            exitstatus = session.exitstatus = (
                pytest.ExitCode.TESTS_FAILED if self.found else pytest.ExitCode.OK
            )
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            self._order(terminal.stats, whole=session.config.get_verbosity() > 0)
        if self.path is not None:
            if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                self._stream(
                    {"finished": True, "order": [name for cause in self.found for name in cause.checks]}
                )
            write(self.path, self.document())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the skipped checks by trait, or by the check's own reason."""
        skipped: dict[str, list[str]] = {}
        for row in self.checks.values():
            if row["outcome"] == "skipped":
                why = f"declared {row['trait']}" if row["trait"] else "does not apply"
                skipped.setdefault(f"{why}: {row['reason']}", []).append(row["id"])
        terminalreporter.section(f"conformance of {self.target.accelerator}")
        if self.found:
            failures = sum(len(cause.checks) for cause in self.found)
            terminalreporter.write_line(
                f"failed: {failures} checks, by {len(self.found)} methods or ops, basic ones first"
            )
        for number, cause in enumerate(self.found, 1):
            more = f" and {len(cause.checks) - 1} more" if len(cause.checks) > 1 else ""
            terminalreporter.write_line(f"{number:3}. {cause.subject}: {cause.checks[0]}{more}")
        for reason, names in skipped.items():
            terminalreporter.write_line(reason)
            terminalreporter.write_line(f"  skips {', '.join(names)}")
        if self.target.vendor is None:
            terminalreporter.write_line("not run: checks of the vendor's record and package (no --accel KEY)")
        for note in notes():
            terminalreporter.write_line(note)

    def _order(self, stats: dict[str, list[Any]], *, whole: bool) -> None:
        """Put the first check of each cause first, and of the others, which may pass once it does, only its name."""
        places = {
            name: (bool(number), cause.checks[0], cause.subject)
            for cause in self.found
            for number, name in enumerate(cause.checks)
        }
        order = {name: place for place, name in enumerate(sorted(places, key=lambda name: places[name][0]))}
        for category in ("failed", "error"):
            reports = stats.get(category, [])
            named = {
                id(report): dict(report.user_properties).get(PROPERTY, {}).get("id") for report in reports
            }
            reports.sort(key=lambda report: order.get(named[id(report)], -1))
            for report in reports:
                later, first, subject = places.get(named[id(report)], (False, "", ""))
                if later and not whole:
                    report.longrepr = f"{subject}: see {first} first (-v shows all)"

    def document(self) -> dict[str, Any]:
        """Return the results as plain data."""
        vendor = self.target.vendor
        names = [*_DISTRIBUTIONS, *([vendor.distribution] if vendor else [])]
        return {
            "schema": SCHEMA,
            "accelerator": self.target.accelerator,
            "key": vendor.label if vendor else "",
            "tiers": list(self.tiers),
            "simulated": bool(notes()),
            "notes": notes(),
            "versions": {
                "python": platform.python_version(),
                **{name: distribution_version(name) or "" for name in names},
            },
            "traits": dict(sorted(self.traits.items())),
            "checks": [self.checks[name] for name in sorted(self.checks)],
        }


def simulated() -> str:
    """Return the key of the vendor whose device is simulated in this process; empty on a real one."""
    return getattr(current(), "type", "")


def computes_as_host() -> bool:
    """Return whether the device of this process is a simulated one with the host's arithmetic, to the last bit."""
    return (device := current()) is not None and device.computes_as_host


def notes() -> list[str]:
    """Return notes for a reader of the results: that the device, or its driver, is not real."""
    device = f"{RUNTIME.get()} on an emulated driver" if RUNTIME.get() else f"simulated {simulated()}"
    text = "shows wiring, contracts and numerics, not speed or the vendor's driver"
    return [f"{device}: {text}"] if RUNTIME.get() or simulated() else []


def _last_words(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):  # of a skip: file, line, reason
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longreprtext).removeprefix("Failed: ")
