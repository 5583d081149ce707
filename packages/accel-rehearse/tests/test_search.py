# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The search for the cheapest setting that fits, with a rehearsal that computes the memory by formula."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accel_rehearse.record import Failure, HostUse, Rehearsal
from accel_rehearse.search import Result, Search, Searched, Setting, changed, lines, read, table

from .records import GIB, rank, rehearsal

CONFIG: dict[str, Any] = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}
CONFIG["zero_optimization"] = {"stage": 1}


class Formula:
    """A model of `parameters` GiB of weights on devices of 64 GiB less 2; counts its rehearsals."""

    def __init__(self, parameters: float, activations: float = 1.0) -> None:
        self.parameters, self.activations = parameters, activations
        self.words: list[tuple[str, ...]] = []
        self.configs: list[dict[str, Any]] = []

    def __call__(self, words: tuple[str, ...], ranks: int) -> Rehearsal:
        config = json.loads(Path(words[words.index("--deepspeed") + 1]).read_text(encoding="utf-8"))
        self.words.append(words)
        self.configs.append(config)
        zero = config["zero_optimization"]
        weights = self.parameters / (ranks if zero["stage"] == 3 else 1)
        gradients = self.parameters / (ranks if zero["stage"] >= 2 else 1)
        states = 0 if "offload_optimizer" in zero else 6 * self.parameters / (ranks if zero["stage"] else 1)
        micro = config["train_micro_batch_size_per_gpu"]
        used = int(GIB * (weights + gradients + states + self.activations * micro))
        outcome = "finished" if used <= 62 * GIB else "out of memory"
        return rehearsal(rank(reserved=used, outcome=outcome), ranks=ranks)


def search(program: Searched, rehearse: Callable[..., Rehearsal], **options: Any) -> Result:
    return Search(program, rehearse, **options).run()


def fits(seen: list[tuple[str, ...]]) -> Callable[..., Rehearsal]:
    """Every setting fits; notes the words of its rehearsals."""
    return lambda words, ranks: seen.append(words) or rehearsal(rank(), ranks=ranks)


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Searched]:
    """Return a program whose configuration is CONFIG with changes."""

    def make(ranks: int, **changes: Any) -> Searched:
        script, config = tmp_path / "train.py", tmp_path / "ds.json"
        script.write_text("pass", encoding="utf-8")
        config.write_text(json.dumps({**CONFIG, **changes}), encoding="utf-8")
        return read([str(script), "--deepspeed", str(config)], ranks)

    return make


def test_fewer_ranks_are_cheaper_than_no_offload(program):
    result = search(program(8), Formula(parameters=16), bound=40)
    assert result.cheapest == Setting(1, 1, "optimizer", 4)
    changes = {"ranks: 8 -> 1", 'zero_optimization.offload_optimizer.device: absent -> "cpu"'}
    assert changes <= {*lines(result.program, result.cheapest)}


def test_fewest_ranks_divide_those_of_the_job(program):
    assert search(program(56), fits([])).cheapest.ranks == 1


def test_the_largest_micro_batch_that_fits_is_taken(program):
    result = search(program(1), Formula(parameters=3, activations=15))
    assert result.cheapest == Setting(1, 0, "none", 2)
    assert lines(result.program, result.cheapest) == [
        "train_micro_batch_size_per_gpu: 4 -> 2",
        "gradient_accumulation_steps: 1 -> 2",
        "zero_optimization.stage: 1 -> 0",
    ]


def test_what_fits_nowhere_is_said_after_few_rehearsals(program):
    formula = Formula(parameters=10_000)
    result = search(program(64), formula)
    assert (result.cheapest, result.complete) == (None, True)
    assert len(formula.words) <= 3
    assert "nothing that was tried fits" in table(result)


def test_the_bound_ends_the_search_with_the_best_that_was_seen(program):
    formula = Formula(parameters=16)
    result = search(program(8), formula, bound=3)
    assert len(formula.words) == 3
    assert not result.complete
    assert result.cheapest is not None
    assert "the search ended early" in table(result)


@pytest.mark.parametrize(
    ("changes", "micro", "ranks", "steps"),
    [({}, 4, 8, 1), ({}, 1, 8, 4), ({}, 4, 1, 8), ({}, 2, 2, 8), ({"train_batch_size": 6}, 4, 8, None)],
)
def test_global_batch_stays_the_same(program, changes, micro, ranks, steps):
    config = changed(program(8, **changes), Setting(ranks, 1, micro_batch=micro))
    assert (config and config["gradient_accumulation_steps"]) == steps


def test_a_rehearsal_accumulates_two_micro_batches_at_most(program):
    formula = Formula(parameters=1)
    search(program(8, gradient_accumulation_steps=64), formula)
    assert {config["gradient_accumulation_steps"] for config in formula.configs} == {2}
    batches = [(each["train_batch_size"], each["train_micro_batch_size_per_gpu"]) for each in formula.configs]
    assert all(batch % micro == 0 for batch, micro in batches)


def test_options_of_the_program_are_tried_the_leanest_last(program):
    formula = Formula(parameters=1)
    options = {"--seq": ["4096", "2048"], "--checkpointing": ["off", "on"]}
    result = search(program(1), formula, options=options)
    assert result.cheapest.options == (("--seq", "4096"), ("--checkpointing", "off"))
    assert formula.words[0][-3:] == ("--seq", "2048", "--checkpointing")
    assert "--checkpointing" not in formula.words[-1]


def test_a_program_that_only_fails_is_not_tried_again_and_again(program):
    def fails(words: tuple[str, ...], ranks: int) -> Rehearsal:
        return rehearsal(rank(outcome="failed", failure=Failure("no such file\nwhere")), ranks=ranks)

    said: list[str] = []
    result = search(program(64), fails, say=said.append)
    assert len(result.tried) == 2
    assert said.count("no such file\nwhere") == 2
    assert "no such file" in table(result)


def test_without_a_configuration_only_ranks_are_varied(tmp_path):
    result = search(
        read(["train.py", str(tmp_path / "missing.json")], 4),
        lambda words, ranks: rehearsal(rank(reserved=(200 // ranks) * GIB), ranks=ranks),
    )
    assert result.cheapest == Setting(4)
    assert "to change:\n  nothing: the job fits as it is" in table(result)


def test_a_configuration_behind_an_equals_sign_is_replaced(tmp_path):
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(CONFIG), encoding="utf-8")
    seen, option = [], f"--deepspeed={file}"
    search(read(["train.py", option, "--x"], 1), fits(seen))
    assert all(words[1].startswith("--deepspeed=") and words[1] != option for words in seen)
    assert {words[2] for words in seen} == {"--x"}


def test_less_offload_is_tried_where_the_host_is_too_small_for_more(program):
    formula = Formula(parameters=1)

    def with_host(words: tuple[str, ...], ranks: int) -> Rehearsal:
        found = formula(words, ranks)
        offloads = "offload_optimizer" in formula.configs[-1]["zero_optimization"]
        host = HostUse(pageable=(100 if offloads else 1) * GIB)
        return replace(found, ranks_rehearsed=(replace(found.ranks_rehearsed[0], host=host),))

    result = search(program(1), with_host, host=11 * GIB)
    assert result.cheapest == Setting(1, 0, "none", 4)


def test_stages_that_the_program_does_not_support_are_left_out(program):
    formula = Formula(parameters=16)

    def pipeline(words: tuple[str, ...], ranks: int) -> Rehearsal:
        found = formula(words, ranks)
        if formula.configs[-1]["zero_optimization"]["stage"] < 2:
            return found
        return rehearsal(rank(outcome="failed", failure=Failure("no ZeRO 2")), ranks=ranks)

    result = search(program(8), pipeline, bound=40)
    assert result.cheapest == Setting(1, 1, "optimizer", 4)


def test_a_node_with_too_little_host_memory_does_not_suit(program):
    result = search(program(8), Formula(parameters=1), host=11 * GIB)  # a rank of these records needs 12 GiB
    assert result.cheapest is None
    assert {rehearsal.verdict for rehearsal in result.tried.values()} == {"fits"}
