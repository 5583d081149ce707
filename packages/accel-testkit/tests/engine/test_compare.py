# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Each comparison of the engine's runs passes on what plain PyTorch finds, and fails on what differs from it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from accel_testkit.engine import reference
from accel_testkit.engine.compare import Comparison, expect_scales_follow_overflows
from accel_testkit.engine.configurations import MATRIX, STEPS, Configuration
from accel_testkit.engine.rank import Found

BY_NAME = {configuration.name: configuration for configuration in MATRIX}
FP16 = BY_NAME["fp16 stage 2"]
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


@pytest.mark.parametrize(
    "name", ["fp32 stage 3", "bf16 stage 1", "fp16 stage 2", "fp16 stage 3 accumulation"]
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_plain_torch_s_own_training_passes(name: str, ranks: int) -> None:
    comparison, figures = compared(BY_NAME[name])
    comparison.with_plain_torch(answers(BY_NAME[name], ranks))
    assert figures == {"difference": 0.0}


@pytest.mark.parametrize(
    ("name", "change", "reported"),
    [
        ("fp32 stage 3", add("losses", 5, 2e-6), "differently from plain PyTorch"),
        ("fp32 stage 3", add("losses", 5, float("nan")), "differently from plain PyTorch"),
        ("bf16 stage 1", add("losses", 0, -3e-3), "differently from plain PyTorch"),
        ("fp16 stage 2", add("scales", 7, 1.0), "GradScaler"),
        ("fp16 stage 2", lambda found: found["skipped"].__setitem__(0, False), "GradScaler"),
    ],
)
def test_a_difference_on_one_rank_fails(name: str, change: Change, reported: str) -> None:
    comparison, _ = compared(BY_NAME[name])
    # One rank: the losses of two are averaged, their scales are not.
    with pytest.raises(pytest.fail.Exception, match=reported):
        comparison.with_plain_torch(answers(BY_NAME[name], 1, change))


def test_an_overflow_that_one_of_two_ranks_misses_fails() -> None:
    comparison, _ = compared(FP16)
    with pytest.raises(pytest.fail.Exception, match="GradScaler"):
        comparison.with_plain_torch(answers(FP16, 2, lambda found: found["skipped"].__setitem__(1, False)))


def test_a_second_half_is_compared_with_the_second_half() -> None:
    half = STEPS // 2
    configuration = BY_NAME["fp32 stage 1 moved"]
    comparison, _ = compared(configuration)
    second = {what: values[half:] for what, values in reference.of(configuration, 1).items()}
    comparison.with_plain_torch([{configuration.name: second}], first=half)
    first = {what: values[:half] for what, values in reference.of(configuration, 1).items()}
    with pytest.raises(pytest.fail.Exception, match="differently"):
        comparison.with_plain_torch([{configuration.name: first}], first=half)


def test_a_training_that_learns_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = {"losses": [4.0] * STEPS, "scales": [1.0] * STEPS, "skipped": [False] * STEPS}
    monkeypatch.setattr(reference, "of", lambda configuration, ranks: flat)
    comparison, _ = compared(BY_NAME["fp32 stage 0"])
    with pytest.raises(pytest.fail.Exception, match="learns nothing"):
        comparison.with_plain_torch([{"fp32 stage 0": flat}])


@pytest.mark.parametrize("answer", [{}, {"fp32 stage 0": "Traceback: it broke"}, {"error": "ended with -9"}])
def test_a_rank_that_does_not_train_fails_with_its_words(answer: dict[str, Any]) -> None:
    comparison, _ = compared(BY_NAME["fp32 stage 0"])
    good = answers(BY_NAME["fp32 stage 0"])
    with pytest.raises(pytest.fail.Exception, match=f"on rank 1\n{next(iter(answer.values()), '')}"):
        comparison.with_plain_torch([*good, answer])


@pytest.mark.parametrize(
    ("exact", "by", "passes"), [(True, 0.0, True), (True, 1e-9, False), (False, 5e-7, True)]
)
def test_bits_have_to_be_the_same_where_the_host_computes(exact: bool, by: float, passes: bool) -> None:
    configuration = BY_NAME["fp32 stage 2"]
    comparison, figures = compared(configuration, exact=exact)
    mine, stock = answers(configuration, 1, add("losses", 3, by)), answers(configuration)
    if passes:
        comparison.with_stock(mine, stock)
    else:
        with pytest.raises(pytest.fail.Exception, match="DeepSpeed on a CPU"):
            comparison.with_stock(mine, stock)
    assert figures["identical"] is (by == 0.0)


@pytest.mark.parametrize("name", ["fp16 stage 1", "fp16 stage 3 growing scale"])
def test_scales_that_follow_overflows_pass(name: str) -> None:
    expect_scales_follow_overflows(BY_NAME[name], reference.of(BY_NAME[name], 1))


def test_the_matrix_has_a_scale_that_overflows_and_one_that_grows_again() -> None:
    found = reference.of(BY_NAME["fp16 stage 3 growing scale"], 1)
    assert found["skipped"][0]
    assert any(second > first for first, second in zip(found["scales"], found["scales"][1:], strict=False))


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["skipped"].__setitem__(0, False),
        lambda found: found["skipped"].__setitem__(slice(None), [True] * STEPS),
        add("scales", 1, 1.0),
    ],
)
def test_scales_that_follow_nothing_fail(change: Change) -> None:
    found = copy.deepcopy(reference.of(FP16, 1))
    change(found)
    with pytest.raises(pytest.fail.Exception, match="not survived"):
        expect_scales_follow_overflows(FP16, found)


def test_every_name_is_its_own_and_the_quick_ones_have_every_kind() -> None:
    assert len(BY_NAME) == len(MATRIX)
    quick = [configuration for configuration in MATRIX if configuration.quick]
    assert {configuration.stage for configuration in quick} == {0, 1, 2, 3}
    assert {configuration.dtype for configuration in quick} == {"fp32", "bf16", "fp16"}
    assert any(c.resume for c in quick)
    assert any(c.accumulate > 1 for c in quick)
    assert any(c.overflows for c in quick)
    assert {c.optimizer for c in quick} == {"torch", "fused", "host"}
