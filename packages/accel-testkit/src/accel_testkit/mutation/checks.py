# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Run checks of a collected pytest session in this process, and record what each reaches."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import _lru_cache_wrapper
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from accel_testkit.mutation import reach


def enter(folder: Path) -> None:
    """Give this child temporary folders of its own."""
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
    os.environ["TMPDIR"] = str(folder)


def until_one_fails(items: Sequence[pytest.Item], keep: Callable[[Any], None]) -> None:
    """Run the checks up to the first that fails; keeps the number of each as it begins, and the failure's text."""
    for number, item in enumerate(items):
        keep(number)
        following = items[number + 1] if number + 1 < len(items) else None
        for report in runtestprotocol(item, log=False, nextitem=following):
            if report.failed:
                crash = getattr(report.longrepr, "reprcrash", None)
                text = crash.message if crash is not None else report.longreprtext
                keep({"failed": number, "text": str(text).removeprefix("Failed: ")[:600]})
                return


@dataclass(eq=False)  # pytest keeps its plug-ins in sets
class Recording:
    """A plug-in that records the lines and the seconds of each fixture and check of this process.

    lines of a fixture count for every check that uses it, though one check alone sets it up.
    caches: emptied before each check, which otherwise would not execute what a former one has computed.
    """

    folder: Path
    recorded: reach.Reach
    caches: Sequence[_lru_cache_wrapper[Any]] = ()
    fixtures: dict[str, tuple[set[reach.Line], float]] = field(default_factory=dict)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Keep what a shared fixture executes."""
        if fixturedef.scope == "function":
            return (yield)
        outside = self._take()
        begun = time.monotonic()
        try:
            return (yield)
        finally:
            lines, seconds = self.fixtures.get(fixturedef.argname, (set(), 0.0))
            now = time.monotonic() - begun
            self.fixtures[fixturedef.argname] = lines | self._take(), seconds + now
            self.recorded.lines |= outside

    def _take(self) -> set[reach.Line]:
        return self.recorded.take() | reach.take_started(self.folder)

    def run(self, items: Sequence[pytest.Item], keep: Callable[[Any], None]) -> None:
        """Run all checks; keeps of each its id, lines, seconds, fixtures and failure, then those of the fixtures."""
        for number, item in enumerate(items):
            following = items[number + 1] if number + 1 < len(items) else None
            shared = sum(seconds for _, seconds in self.fixtures.values())
            for cache in self.caches:
                cache.cache_clear()
            begun = time.monotonic()
            reports = runtestprotocol(item, log=False, nextitem=following)
            seconds = time.monotonic() - begun
            seconds -= sum(seconds for _, seconds in self.fixtures.values()) - shared
            failed = [str(report.longreprtext) for report in reports if report.failed]
            keep({
                "item": item.nodeid,
                "lines": sorted(self._take()),
                "seconds": max(seconds, 0.0),
                "fixtures": sorted(set(getattr(item, "fixturenames", ()))),
                "failed": "\n".join(failed)[-2000:],
                "skipped": any(report.skipped for report in reports),
            })  # fmt: skip
        for name, (lines, seconds) in self.fixtures.items():
            keep({"fixture": name, "lines": sorted(lines), "seconds": seconds})
