# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A pytest plug-in that runs, instead of the collected checks, mutants of the accelerator against them.

Everything heavy is imported once, here; each mutant then costs one fork. This process constructs no accelerator whose
state a child would inherit, and opens no device context.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import _lru_cache_wrapper, partial
from pathlib import Path
from typing import Any

import pytest

from accel_core.api import using
from accel_core.op_builder import OpTable
from accel_testkit.mutation import checks, equivalents, patch, reach, rules, scope, tables, tree, unreached
from accel_testkit.mutation.forks import Forks, Steps, Task
from accel_testkit.mutation.judgement import Check, Judge, Outcome, Verdict
from accel_testkit.mutation.source import Function, Mutant, Source
from accel_testkit.suite import results
from accel_testkit.suite.target import TARGET, Target

#: Guard against a hang while the checks run without a mutant, in seconds for each file.
_LIMIT = 900.0
#: DeepSpeed's names of ops, by which the suite itself asks: no behaviour of an accelerator.
_NAMES = "accel_core.op_builder.names"


@dataclass(frozen=True)
class Wish:
    """What the command line asks for.

    only: part of a function's or rule's name; known: files of equivalents; also: packages to mutate as well.
    """

    jobs: int
    sample: int | None = None
    seed: int = 0
    only: str = ""
    known: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


@dataclass(eq=False)
class MutationSession:
    """The plug-in. tell: gets a JSON object for each thing that has happened."""

    wish: Wish
    tell: Callable[[dict[str, Any]], None]
    forks: Forks = field(init=False)

    def __post_init__(self) -> None:
        self.forks = Forks(self.wish.jobs)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the mutants."""
        if session.testsfailed or not session.items:
            return False
        target = session.config.stash[TARGET]
        self._preload(target)
        # Only now is a runtime imported that shows whether the device is simulated.
        self.tell({"event": "about", **_about(target)})
        surveyed = self._survey(target)
        before = tree.digests(surveyed.packages)
        found, constructing = self._baseline(session.items, surveyed)
        sources = list(scope.sources(surveyed))
        _import(sources, {name for check in found for name, _ in check.lines})
        places = list(surveyed.places.values())
        live = patch.live_functions(places)
        judge = Judge(target, found, live, constructing, _caches(surveyed), tables.readers(sources))
        gc.freeze()  # the children share these pages
        self._judge(judge, list(self._mutants(sources, surveyed, found)))
        if files := tree.changed(before, tree.digests(surveyed.packages)):
            self.tell({"event": "changed", "files": files})
        return True

    # ------------------------------------------------------------------------------------- before

    def _preload(self, target: Target) -> None:
        """Import deepspeed as the checks do, with an accelerator whose op table nobody else uses."""
        with contextlib.suppress(ImportError):
            accelerator = target.construct()
            for name, value in vars(accelerator).items():
                if isinstance(value, OpTable):
                    setattr(accelerator, name, OpTable(value.package, dict(value)))
            with using(accelerator):
                importlib.import_module("deepspeed")
        # Seconds in each child that compiles.
        importlib.import_module("torch._inductor.compile_fx")

    def _survey(self, target: Target) -> scope.Scope:
        def work(folder: Path, keep: Callable[[Any], None]) -> None:
            checks.enter(folder)
            keep(scope.survey(target.construct(), self.wish.also).document())

        (done,) = self.forks.run([_once(Task(work, _LIMIT))])
        if done.ended:
            raise pytest.UsageError(f"the accelerator cannot be constructed: the process {done.ended}")
        return scope.Scope.read(done.messages[0])

    def _baseline(
        self, items: Sequence[pytest.Item], surveyed: scope.Scope
    ) -> tuple[list[Check], frozenset[reach.Line]]:
        """Run every file of checks without a mutant; what fails or is skipped then cannot notice one."""
        places = list(surveyed.places.values())
        files: dict[Path, list[pytest.Item]] = {}
        for item in items:
            files.setdefault(item.path, []).append(item)

        def work(batch: list[pytest.Item], folder: Path, keep: Callable[[Any], None]) -> None:
            checks.enter(folder)
            traced = folder / "reach"
            traced.mkdir()
            recorded = reach.Reach(places)
            recording = checks.Recording(traced, recorded, _caches(surveyed))
            batch[0].config.pluginmanager.register(recording)
            reach.watch_started(traced, places)
            recorded.start()
            recording.run(batch, keep)

        rows: list[dict[str, Any]] = []
        for done in self.forks.run([_once(Task(partial(work, batch), _LIMIT)) for batch in files.values()]):
            rows += done.messages
            if done.ended:
                self.tell(
                    {
                        "event": "baseline",
                        "checks": 0,
                        "failed": {"a file of checks": f"the process {done.ended}"},
                    }
                )
        found, constructing = _checks(items, rows)
        failed = {row["item"].rpartition("/")[2]: row["failed"] for row in rows if row.get("failed")}
        self.tell({"event": "baseline", "checks": len(found), "failed": failed})
        return found, constructing

    def _mutants(
        self, sources: Sequence[Source], surveyed: scope.Scope, found: Sequence[Check]
    ) -> Iterator[Mutant]:
        """Yield the mutants of the functions that are in scope: executed by a check, or named by the survey."""
        executed: dict[str, set[int]] = {}
        for check in found:
            for name, line in check.lines:
                executed.setdefault(name, set()).add(line)
        for source in sources:
            if source.module == _NAMES:
                continue
            lines = executed.get(str(source.path), set())
            wanted = set()
            for function in source.functions():
                end = function.node.end_lineno or function.first_line
                named = (str(source.path), scope.first_line(function)) in surveyed.named
                if named or not lines.isdisjoint(range(function.first_line, end + 1)):
                    wanted.add(function.name)
            # The vendor's record has checks of its own, by core when it finds the package.
            if wanted and source.path.name != "vendor.py":
                wanted |= {table.name for table in source.tables() if _belongs(table, surveyed, wanted)}
            beyond = unreached.Unreached.of(source, lines, wanted, surveyed.named)
            left_out = 0
            for mutant in rules.mutants(source):
                if mutant.function in wanted and self.wish.only in f"{mutant.name} {mutant.rule}":
                    if beyond.has(mutant):
                        left_out += 1
                    else:
                        yield mutant
            self.tell({"event": "left out", "count": left_out})

    # -------------------------------------------------------------------------------------- after

    def _judge(self, judge: Judge, mutants: list[Mutant]) -> None:
        known = equivalents.load([equivalents.OURS, *map(Path, self.wish.known)])
        mutants = [mutant for mutant in mutants if patch.differs(mutant)]
        if self.wish.sample is not None and self.wish.sample < len(mutants):
            mutants = random.Random(self.wish.seed).sample(mutants, self.wish.sample)
        self.tell({"event": "mutants", "count": len(mutants)})

        def steps(mutant: Mutant) -> Steps[Verdict]:
            entry = equivalents.about(mutant, known)
            if entry is not None and entry.kind == "equivalent":
                return Verdict(mutant, Outcome.EQUIVALENT, note=entry.reason)
            verdict = yield from judge.verdict(mutant)
            if entry is not None and verdict.outcome is Outcome.SURVIVED:
                return Verdict(mutant, Outcome.SURVIVED, note=f"known: {entry.reason}")
            return verdict

        for verdict in self.forks.run(map(steps, mutants)):
            self.tell({"event": "verdict", **row(verdict)})
        if judge.unsteady:
            self.tell({"event": "unsteady", "checks": sorted(judge.unsteady)})


def row(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain data."""
    mutant = verdict.mutant
    return {
        "module": mutant.source.module,
        "function": mutant.function,
        "line": mutant.first,
        "rule": mutant.rule,
        "change": list(equivalents.change(mutant)),
        "outcome": verdict.outcome.value,
        "by": verdict.by,
        "note": verdict.note,
    }


def _belongs(table: Function, surveyed: scope.Scope, wanted: set[str]) -> bool:
    """Return whether a table is no setting of a class that the accelerator has nothing of."""
    name = table.name.rpartition(".")[0]
    used = any(function.startswith(f"{name}.") for function in wanted)
    return not name or used or not surveyed.lacks(table.source.module, name)


def _about(target: Target) -> dict[str, Any]:
    recorder = results.Recorder(target, (), None).document()
    return {name: recorder[name] for name in ("accelerator", "key", "simulated", "notes", "versions")}


def _once(task: Task) -> Steps[Any]:
    return (yield task)


def _checks(
    items: Sequence[pytest.Item], rows: Sequence[dict[str, Any]]
) -> tuple[list[Check], frozenset[reach.Line]]:
    by_id = {item.nodeid: item for item in items}
    fixtures: dict[str, tuple[set[reach.Line], float]] = {}
    for about in rows:
        if "fixture" in about:
            lines, seconds = fixtures.get(about["fixture"], (set(), 0.0))
            fixtures[about["fixture"]] = (
                lines | set(map(tuple, about["lines"])),
                max(seconds, about["seconds"]),
            )
    found = []
    for about in rows:
        if "item" in about and not about["failed"] and not about["skipped"]:
            shared = [name for name in about["fixtures"] if name in fixtures]
            lines = set(map(tuple, about["lines"])).union(*(fixtures[name][0] for name in shared))
            costs = tuple((name, fixtures[name][1]) for name in shared)
            found.append(Check(by_id[about["item"]], frozenset(lines), about["seconds"], costs))
    return found, frozenset(fixtures.get("accelerator", (set(), 0.0))[0])


def _import(sources: Sequence[Source], executed: set[str]) -> None:
    """Import the modules of which checks have executed something, so that a child finds their functions."""
    for source in sources:
        if str(source.path) in executed:
            with contextlib.suppress(Exception):
                importlib.import_module(source.module)


def _caches(surveyed: scope.Scope) -> list[_lru_cache_wrapper[Any]]:
    return [
        thing
        for thing in gc.get_objects()
        if type(thing) is _lru_cache_wrapper
        and str(getattr(thing, "__module__", "")).startswith(tuple(surveyed.packages))
    ]
