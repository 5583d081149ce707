# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The runs of a session: each on the accelerator and on DeepSpeed's own CPU accelerator."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from accel_testkit import stock_builds
from accel_testkit.engine.configurations import Configuration
from accel_testkit.engine.rank import Order
from accel_testkit.suite.expect import expect
from accel_testkit.suite.launch import LIMIT, RankLauncher

Answers = list[dict[str, Any]]
STOCK = "deepspeed.accelerator.cpu_accelerator.CPU_Accelerator"
#: Guards against a hang, in seconds: for DeepSpeed's own CPU, which compiles, and for each configuration.
_COMPILE, _EACH = 600.0, 30.0
_NOTE_SECONDS = 10.0
Note = Callable[[str], None]
_JOB = "accel_testkit.engine.rank"


def _stock() -> dict[str, str]:
    """Return the variables of stock DeepSpeed without this project and the vendor's runtime."""
    return {**stock_builds.environment(), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def expect_trained_on(accelerator: str, answers: Answers) -> None:
    """Fail unless every rank that reported an accelerator had this class."""
    wanted = accelerator.replace(":", ".")
    others = [answer for answer in answers if answer.get("accelerator", wanted) != wanted]
    expect(
        not others,
        "the engine ran on another accelerator",
        found=", ".join(str(answer["accelerator"]) for answer in others),
        expected=wanted,
        do="run `accel doctor` on this machine",
    )


class RunKey(NamedTuple):
    """The identity of a run.

    ranks:  number of ranks.
    origin: number of ranks whose checkpoints the run continues from; 0 for none.
    stock:  whether DeepSpeed's own CPU accelerator runs it.
    """

    ranks: int
    origin: int = 0
    stock: bool = False


class Runs:
    """Starts each run once, when its answers are first needed."""

    def __init__(
        self,
        launcher: RankLauncher,
        chosen: Sequence[Configuration],
        checkpoints: Path,
        note: Note = lambda text: None,
    ) -> None:
        """Start nothing. note: called with the progress of the runs."""
        self._launcher = launcher
        self._chosen = chosen
        self._checkpoints = checkpoints
        self._note = note
        self._not_started = ""
        self._threads = ThreadPoolExecutor(max_workers=2)
        self._runs: dict[RunKey, Future[Answers]] = {}

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    def answers(self, key: RunKey) -> Answers:
        """Wait for the answers of all ranks and return them."""
        if key.origin:
            self.answers(RunKey(key.origin, stock=key.stock))
        elif key.ranks == 1:
            # Two processes of one rank each are like one run of two.
            self._run(key._replace(stock=not key.stock))
        answers = self._run(key).result()
        expect_trained_on(STOCK if key.stock else self._launcher.target.accelerator, answers)
        return answers

    def _run(self, key: RunKey) -> Future[Answers]:
        if key not in self._runs:
            self._runs[key] = self._threads.submit(self._train, key)
        return self._runs[key]

    def _train(self, key: RunKey) -> Answers:
        folder = self._checkpoints / ("stock" if key.stock else "here")
        wanted = [
            c for c in self._chosen if (c.same_arithmetic or not key.stock) and (c.moves or not key.origin)
        ]
        order = Order([c.name for c in wanted], str(folder), key.origin, key.stock)
        with stock_builds.started(self._start_stock) if key.stock else nullcontext():
            environment = _stock() if key.stock else {}
            limit, noting = LIMIT + _EACH * len(wanted), self._noting(key, len(wanted))
            return self._launcher.run(_JOB, key.ranks, asdict(order), environment, limit, waiting=noting)

    def _start_stock(self) -> None:
        """Start DeepSpeed's own CPU on one rank, so that it compiles. A failure is not tried again."""
        began, next_note = time.monotonic(), 0.0

        def noting(_folder: Path) -> None:
            nonlocal next_note
            passed = time.monotonic() - began
            if passed >= next_note:
                next_note += _NOTE_SECONDS
                self._note(f"DeepSpeed's own CPU compiles its op, once on this machine: {passed:.0f} s")

        if not self._not_started:
            order = asdict(Order([], "", stock=True))
            (answer,) = self._launcher.run(_JOB, 1, order, _stock(), _COMPILE, waiting=noting)
            self._not_started = str(answer.get("error", ""))
        expect(
            not self._not_started,
            stock_builds.NOT_STARTED,
            found=self._not_started,
            expected="stock DeepSpeed on the CPU, to compare with; it compiles an op when it first starts",
            do=f"the accelerator is not the cause. Look for a C++ compiler, or delete {stock_builds.folder()}",
        )

    def _noting(self, key: RunKey, configurations: int) -> Callable[[Path], None]:
        """Return a function that notes the number of configurations trained by the first rank."""
        before = 0

        def noting(folder: Path) -> None:
            nonlocal before
            path = folder / "0.json"
            size = path.stat().st_size if path.is_file() else 0
            if size != before:
                before, trained = size, len(json.loads(path.read_text(encoding="utf-8"))) - 1
                whose = "DeepSpeed's own CPU" if key.stock else "the accelerator"
                self._note(f"{trained} of {configurations} configurations on {whose}")

        return noting
