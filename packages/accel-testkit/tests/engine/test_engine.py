# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Each comparison of the engine's runs fails on what differs from plain PyTorch; which runs are started, with what."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accel_testkit import stock_builds
from accel_testkit.engine import reference
from accel_testkit.engine.compare import Comparison
from accel_testkit.engine.configurations import MATRIX, STEPS, Configuration
from accel_testkit.engine.rank import Found
from accel_testkit.engine.runs import STOCK, RunKey, Runs

BY_NAME = {configuration.name: configuration for configuration in MATRIX}
Change = Callable[[Found], Any]


def compared(configuration: Configuration, **options: Any) -> tuple[Comparison, dict[str, Any]]:
    """A comparison, and the figures it records."""
    figures: dict[str, Any] = {}
    settings = {"refused": None, "exact": True, "record": figures.update, **options}
    return Comparison(configuration, **settings), figures


def answers(configuration: Configuration, ranks: int = 1, change: Change | None = None) -> Any:
    """What ranks would say that train as plain PyTorch does, the last one changed."""
    found = [copy.deepcopy(reference.of(configuration, ranks)) for _ in range(ranks)]
    if change is not None:
        change(found[-1])
    return [{configuration.name: rank} for rank in found]


def add(what: str, step: int, value: float) -> Change:
    return lambda found: found[what].__setitem__(step, found[what][step] + value)


def not_skipped(step: int) -> Change:
    return lambda found: found["skipped"].__setitem__(step, False)


@pytest.mark.parametrize(
    "name", ["fp32 stage 3", "bf16 stage 1", "fp16 stage 2", "fp16 stage 3 accumulation"]
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_plain_torch_s_own_training_passes(name: str, ranks: int) -> None:
    comparison, figures = compared(BY_NAME[name])
    comparison.with_plain_torch(answers(BY_NAME[name], ranks))
    assert figures == {"difference": 0.0}


@pytest.mark.parametrize(
    ("name", "ranks", "change", "reported"),
    [
        # One rank: the losses of two are averaged, their scales are not.
        ("fp32 stage 3", 1, add("losses", 5, 2e-6), "differently from plain PyTorch"),
        ("fp32 stage 3", 1, add("losses", 5, float("nan")), "differently from plain PyTorch"),
        ("bf16 stage 1", 1, add("losses", 0, -3e-3), "differently from plain PyTorch"),
        ("fp16 stage 2", 1, add("scales", 7, 1.0), "GradScaler"),
        ("fp16 stage 2", 1, not_skipped(0), "GradScaler"),
        ("fp16 stage 2", 2, not_skipped(1), "GradScaler"),
    ],
)
def test_a_difference_on_one_rank_fails(name: str, ranks: int, change: Change, reported: str) -> None:
    comparison, _ = compared(BY_NAME[name])
    with pytest.raises(pytest.fail.Exception, match=reported):
        comparison.with_plain_torch(answers(BY_NAME[name], ranks, change))


def test_a_second_half_is_compared_with_the_second_half() -> None:
    half = STEPS // 2
    configuration = BY_NAME["fp32 stage 1 moved"]
    comparison, _ = compared(configuration)
    second = {what: values[half:] for what, values in reference.of(configuration, 1).items()}
    comparison.with_plain_torch([{configuration.name: second}], first=half)
    first = {what: values[:half] for what, values in reference.of(configuration, 1).items()}
    with pytest.raises(pytest.fail.Exception, match="differently"):
        comparison.with_plain_torch([{configuration.name: first}], first=half)


@pytest.mark.parametrize("answer", [{}, {"fp32 stage 0": "Traceback: it broke"}, {"error": "ended with -9"}])
def test_a_rank_that_does_not_train_fails_with_its_words(answer: dict[str, Any]) -> None:
    comparison, _ = compared(BY_NAME["fp32 stage 0"])
    good = answers(BY_NAME["fp32 stage 0"])
    with pytest.raises(pytest.fail.Exception, match=f"on rank 1\n{next(iter(answer.values()), '')}"):
        comparison.with_plain_torch([*good, answer])


@pytest.mark.parametrize(
    ("exact", "by", "passes"), [(True, 0, True), (True, 1e-9, False), (False, 5e-7, True)]
)
def test_bits_have_to_be_the_same_where_the_host_computes(exact: bool, by: float, passes: bool) -> None:
    configuration = BY_NAME["fp32 stage 2"]
    comparison, figures = compared(configuration, exact=exact)
    mine, stock = answers(configuration, 1, add("losses", 3, by)), answers(configuration)
    with nullcontext() if passes else pytest.raises(pytest.fail.Exception, match="DeepSpeed on a CPU"):
        comparison.with_stock(mine, stock)
    assert figures["identical"] is (by == 0)


def test_the_reference_learns_and_has_scales_that_overflow_and_grow() -> None:
    found = reference.of(BY_NAME["fp16 stage 3 growing scale"], 1)
    assert found["losses"][-1] < 0.8 * found["losses"][0]
    assert found["skipped"].count(False) >= STEPS // 2
    assert found["skipped"][0]
    assert any(second > first for first, second in zip(found["scales"], found["scales"][1:], strict=False))


def test_every_name_is_its_own_and_the_quick_ones_have_every_kind() -> None:
    assert len(BY_NAME) == len(MATRIX)
    quick = [configuration for configuration in MATRIX if configuration.quick]
    assert {configuration.stage for configuration in quick} == {0, 1, 2, 3}
    assert {configuration.dtype for configuration in quick} == {"fp32", "bf16", "fp16"}
    assert any(c.resume for c in quick)
    assert any(c.accumulate > 1 for c in quick)
    assert {c.optimizer for c in quick} == {"torch", "fused", "host"}


# --- which runs are started, with what, and that they are on the accelerator they should be on

OURS = "accel_good.accelerator:GOOD_Accelerator"


@dataclass
class Recording:
    """A launcher that starts nothing."""

    accelerator: str = OURS.replace(":", ".")
    error: str = ""
    stock_error: str = ""
    stock_starts: int = 0
    started: list[tuple[int, dict[str, Any], dict[str, str]]] = field(default_factory=list)
    target: Any = field(default_factory=lambda: SimpleNamespace(accelerator=OURS))

    def run(
        self, job: str, ranks: int, order: dict[str, Any], environment: Any, limit: float, waiting: Any
    ) -> Any:
        if not order["names"]:
            self.stock_starts += 1
            return [{"error": self.stock_error} if self.stock_error else {}]
        self.started.append((ranks, order, dict(environment)))
        error = {"error": self.error} if self.error else {}
        return [{"accelerator": STOCK if order["stock"] else self.accelerator, **error}] * ranks


@pytest.fixture(autouse=True)
def _no_builds(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def answered(launcher: Recording, *kinds: RunKey) -> Any:
    """Ranks, origin and whether it is stock DeepSpeed, of what was started."""
    with Runs(launcher, MATRIX, Path("checkpoints")) as runs:  # type: ignore[arg-type]
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


def test_stock_failure_is_reported_as_such() -> None:
    launcher = Recording(stock_error="ninja: build stopped")
    with Runs(launcher, MATRIX, Path("checkpoints")) as runs:  # type: ignore[arg-type]
        for ranks in (1, 2):
            with pytest.raises(pytest.fail.Exception, match="DeepSpeed's own CPU did not start") as failed:
                runs.answers(RunKey(ranks, stock=True))
            assert "ninja: build stopped" in str(failed.value)
        assert len(runs.answers(RunKey(1))) == 1
    assert launcher.stock_starts == 1
    assert [order["stock"] for _, order, _ in launcher.started] == [False]


def test_stock_compiles_in_a_private_folder() -> None:
    launcher = Recording()
    answered(launcher, RunKey(1, stock=True), RunKey(2, stock=True))
    assert launcher.stock_starts == 1
    folders = {env.get("TORCH_EXTENSIONS_DIR") for _, order, env in launcher.started if order["stock"]}
    assert folders == {str(stock_builds.folder())}


def test_a_run_on_another_accelerator_fails() -> None:
    launcher = Recording(accelerator="accel_cpu.accelerator.CPU_Accelerator")
    with pytest.raises(pytest.fail.Exception, match="ran on another accelerator"):
        answered(launcher, RunKey(2))
