# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which runs are started, with what, and that they are on the accelerator they should be on."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accel_testkit.engine.configurations import MATRIX
from accel_testkit.engine.runs import STOCK, RunKey, Runs

OURS = "accel_good.accelerator:GOOD_Accelerator"


@dataclass
class Recording:
    """A launcher that starts nothing."""

    accelerator: str = OURS.replace(":", ".")
    error: str = ""
    started: list[tuple[int, dict[str, Any], dict[str, str]]] = field(default_factory=list)
    target: Any = field(default_factory=lambda: SimpleNamespace(accelerator=OURS))

    def run(self, job: str, ranks: int, order: dict[str, Any], environment: Any, limit: float) -> Any:
        self.started.append((ranks, order, dict(environment)))
        error = {"error": self.error} if self.error else {}
        return [{"accelerator": STOCK if order["stock"] else self.accelerator, **error}] * ranks


def answered(launcher: Recording, *kinds: RunKey, stock_answers: Path | None = None) -> Any:
    """Ranks, origin and whether it is stock DeepSpeed, of what was started."""
    with Runs(launcher, MATRIX, Path("checkpoints"), stock_answers) as runs:  # type: ignore[arg-type]
        for kind in kinds:
            assert len(runs.answers(kind)) == kind.ranks
    return sorted((ranks, order["origin"], order["stock"]) for ranks, order, _ in launcher.started)


def test_each_kind_is_started_once_and_one_rank_has_its_measure_beside_it() -> None:
    started = answered(Recording(), RunKey(1), RunKey(1), RunKey(1, stock=True), RunKey(2), RunKey(2))
    assert started == [(1, 0, False), (1, 0, True), (2, 0, False)]


def test_a_checkpoint_is_written_before_another_number_of_ranks_loads_it() -> None:
    launcher = Recording()
    assert answered(launcher, RunKey(1, origin=2)) == [(1, 2, False), (2, 0, False)]
    assert [ranks for ranks, _, _ in launcher.started] == [2, 1]
    moved = launcher.started[1][1]["names"]
    assert moved == [configuration.name for configuration in MATRIX if configuration.moves]
    assert launcher.started[0][1]["checkpoints"] == launcher.started[1][1]["checkpoints"]


def test_the_measure_is_deepspeed_without_this_project() -> None:
    launcher = Recording()
    answered(launcher, RunKey(2, stock=True))
    ((_, order, environment),) = launcher.started
    assert environment["DS_ACCELERATOR"] == "cpu"
    assert environment["ACCEL_BRIDGE"] == environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"
    assert all(c.same_arithmetic for c in MATRIX if c.name in order["names"])


def test_a_run_on_another_accelerator_fails() -> None:
    launcher = Recording(accelerator="accel_cpu.accelerator.CPU_Accelerator")
    with pytest.raises(pytest.fail.Exception, match="ran on another accelerator"):
        answered(launcher, RunKey(2))


def test_the_measure_is_shared_between_sessions_that_name_a_folder(tmp_path: Path) -> None:
    kinds = [RunKey(1), RunKey(1, stock=True), RunKey(2, stock=True)]
    first, second = Recording(), Recording()
    assert answered(first, *kinds, stock_answers=tmp_path) == [(1, 0, False), (1, 0, True), (2, 0, True)]
    assert answered(second, *kinds, stock_answers=tmp_path) == [(1, 0, False)]


def test_a_measure_that_failed_is_not_shared(tmp_path: Path) -> None:
    launcher = Recording(error="ended with 1")
    for _ in range(2):
        answered(launcher, RunKey(2, stock=True), stock_answers=tmp_path)
    assert len(launcher.started) == 2


def test_measures_of_other_configurations_are_apart(tmp_path: Path) -> None:
    launcher = Recording()
    for chosen in (MATRIX[:2], MATRIX[:3]):
        with Runs(launcher, chosen, tmp_path, tmp_path) as runs:  # type: ignore[arg-type]
            runs.answers(RunKey(2, stock=True))
    assert len(launcher.started) == 2
