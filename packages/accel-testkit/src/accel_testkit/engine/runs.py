# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The runs of a session: on the accelerator, and the same beside it on DeepSpeed's own CPU accelerator."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from accel_testkit.engine.configurations import Configuration
from accel_testkit.engine.rank import Order
from accel_testkit.suite.expect import expect
from accel_testkit.suite.launch import Launcher

Answers = list[dict[str, Any]]
#: DeepSpeed as it is without this project, and without the vendor's runtime.
_STOCK = {"DS_ACCELERATOR": "cpu", "ACCEL_BRIDGE": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
STOCK = "deepspeed.accelerator.cpu_accelerator.CPU_Accelerator"
#: Guards against a hang, in seconds: for the start, and for each configuration.
_START, _EACH = 120.0, 30.0


def expect_trained_on(accelerator: str, answers: Answers) -> None:
    """Fail unless every rank that got so far had this class."""
    wanted = accelerator.replace(":", ".")
    strangers = [answer for answer in answers if answer.get("accelerator", wanted) != wanted]
    expect(
        not strangers,
        "the engine ran on another accelerator",
        found=", ".join(str(answer["accelerator"]) for answer in strangers),
        expected=wanted,
        do="run `accel doctor` on this machine",
    )


class Kind(NamedTuple):
    """Number of ranks, of those whose checkpoints are gone on from (0: none), and whether DeepSpeed's CPU does it."""

    ranks: int
    origin: int = 0
    stock: bool = False


class Runs:
    """Starts each kind of run once, when it is first asked for."""

    def __init__(self, launcher: Launcher, chosen: Sequence[Configuration], checkpoints: Path) -> None:
        self._launcher = launcher
        self._chosen = chosen
        self._checkpoints = checkpoints
        self._threads = ThreadPoolExecutor(max_workers=2)
        self._runs: dict[Kind, Future[Answers]] = {}

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    def answers(self, kind: Kind) -> Answers:
        """The answers of all ranks; waits for them."""
        if kind.origin:
            self.answers(Kind(kind.origin, stock=kind.stock))
        elif kind.ranks == 1:
            # Two processes of one rank each are no more than one run of two.
            self._run(kind._replace(stock=not kind.stock))
        answers = self._run(kind).result()
        expect_trained_on(STOCK if kind.stock else self._launcher.target.accelerator, answers)
        return answers

    def _run(self, kind: Kind) -> Future[Answers]:
        if kind not in self._runs:
            self._runs[kind] = self._threads.submit(self._train, kind)
        return self._runs[kind]

    def _train(self, kind: Kind) -> Answers:
        folder = self._checkpoints / ("stock" if kind.stock else "here")
        wanted = [
            c for c in self._chosen if (c.same_arithmetic or not kind.stock) and (c.moves or not kind.origin)
        ]
        order = Order([c.name for c in wanted], str(folder), kind.origin, kind.stock)
        limit = _START + _EACH * len(wanted)
        environment = _STOCK if kind.stock else {}
        return self._launcher.run("accel_testkit.engine.rank", kind.ranks, asdict(order), environment, limit)
