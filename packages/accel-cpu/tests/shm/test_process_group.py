# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The backend `shm`: right results, and no hang or crash when ranks are lost, interrupted, forked or differ.

Results are exact, or those of float64 within one rounding.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import shm_faults as faults
import shm_jobs as jobs
import shm_offers
import shm_programs as programs
import shm_random
import torch

from accel_core.vendor import in_range

#: What is compared with gloo, or done by it.
reduces_right = pytest.mark.skipif(
    not in_range(torch.__version__, ">=2.13"),
    reason="not run: gloo of torch 2.8 sums in every reduce_scatter, whatever its operation",
)
#: Seconds within which survivors raise: on a busy machine more than a few, and far from the group's timeout of 60.
SOON = 30.0


def _done(ranks: int, seed: int, count: int, largest: int, limit: float = jobs.LIMIT) -> Counter[str]:
    """Make random calls and return how often each function was called."""
    values = jobs.values(shm_random.calls, ranks, seed, count, largest, limit=limit)
    done = sum(values, Counter[str]())
    assert sum(done.values()) == count
    return done


@pytest.mark.sample("3")
@pytest.mark.parametrize("ranks", [2, 3])
def test_results_are_right_for_every_function_type_operation_size_and_stride(ranks: int) -> None:
    done = _done(ranks, seed=1, count=150, largest=20_000)
    assert {function.__name__ for function in shm_random.FUNCTIONS} <= set(done)


def test_tensors_larger_than_the_shared_memory_go_through_it_in_pieces() -> None:
    _done(2, seed=2, count=12, largest=4 << 20)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 7])
def test_results_of_random_calls_of_up_to_16_mi_elements(ranks: int) -> None:
    _done(ranks, seed=ranks, count=320, largest=16 << 20, limit=1800.0)


@pytest.mark.sample("*ddp*")
@pytest.mark.parametrize(
    "program",
    [programs.ddp, pytest.param(programs.fsdp, marks=reduces_right), programs.functionals, programs.handles],
)
def test_torchs_programs_compute_the_same_as_on_gloo(program: Any) -> None:
    # Two ranks: a sum of two numbers does not depend on the order.
    assert jobs.values(program, 2) == jobs.values(program, 2, backend="gloo")


@pytest.mark.slow
@reduces_right
def test_what_gloo_offers_besides_collectives_is_the_same(tmp_path: Path) -> None:
    by_gloo = jobs.values(shm_offers.all_of_them, 2, backend="gloo")
    done = [name for name, result in by_gloo[0].items() if type(result) is str]
    assert len(done) >= 7
    without_memory = jobs.values(shm_offers.without_memory, 2, f"{tmp_path}/again")
    for found in (jobs.values(shm_offers.all_of_them, 2), without_memory):
        for rank in (0, 1):
            assert {name: found[rank][name] for name in done} == {name: by_gloo[rank][name] for name in done}


def test_many_groups_leave_no_descriptor_and_no_memory() -> None:
    for before, after, reasons in jobs.values(programs.many_groups, 3, 30):
        assert all(now <= was for now, was in zip(after, before, strict=True)), (before, after)
        assert all(reason.startswith("shared memory") for reason in reasons), reasons


def test_the_default_group_can_be_made_again(tmp_path: Path) -> None:
    assert jobs.values(programs.again, 2, str(tmp_path)) == [[3.0] * 4] * 2


@pytest.mark.parametrize(
    ("program", "ranks", "returned"),
    [
        (faults.of_another_length, 2, ["RuntimeError", "RuntimeError"]),
        (faults.left_early, 3, 3.0),  # as soon as a rank's own last call is done
        (faults.from_two_threads, 2, [400.0, 1.0]),
        # The flight recorder of torch >= 2.15 reads them when a group is created.
        (programs.sequence_numbers, 2, [0, 0]),
        (programs.threads, 2, []),
        (programs.inference, 3, [[6.0, 6.0], [6.0, 6.0], 0]),
        (shm_offers.kept, 1, []),
        (shm_offers.kept, 2, []),
    ],
)
def test_program_returns_the_same_on_all_ranks(program: Any, ranks: int, returned: Any) -> None:
    assert jobs.values(program, ranks) == [returned] * ranks


def test_a_rank_that_is_killed_while_the_ranks_agree_ends_the_others_by_the_stores_timeout() -> None:
    survivor, killed = jobs.run(faults.lost_while_they_agree, 2, timeout=5.0, backend="gloo")
    assert killed.lost
    assert "timeout" in survivor.error.lower()
    assert survivor.seconds < 5 + SOON


def test_a_rank_that_does_not_come_is_named_after_the_groups_timeout() -> None:
    report, _ = jobs.run(faults.waits_for_nobody, 2)
    assert "rank 1 did not arrive within 5 s" in report.error


@pytest.mark.parametrize(
    ("what", "other", "named"),
    [
        ("float32", "bfloat16", "bfloat16"),
        ("float32", "complex64", "192 bytes"),
        ("float32", "larger", "120 bytes"),
        ("float32", "transposed", "shape"),
        ("float32", "max", "(max)"),
        ("float32", "broadcast", "broadcast"),
        ("broadcast", "root", "root 1"),
        ("float32", "barrier", "barrier"),
        ("float32", "reduce", "reduce (sum)"),
        ("float32", "by gloo", "another collective by gloo"),
        ("scatter", "uneven list", "another collective by gloo"),
        ("float32", "asynchronous", "float64"),
    ],
)
def test_different_calls_raise_on_every_rank(what: str, other: str, named: str) -> None:
    reports = jobs.run(faults.differ, 3, what, other)
    for report in reports:
        assert "CollectiveMismatch" in report.error, report
        assert report.seconds < SOON
    assert "rank 2" in reports[0].error
    assert named in reports[0].error


@pytest.mark.sample("4-*")
@pytest.mark.parametrize(("ranks", "hosts"), [(2, ()), (3, ()), (4, (0, 0, 1, 1))])
def test_unequal_all_to_all_raises_everywhere(ranks: int, hosts: tuple[int, ...]) -> None:
    for rank, report in enumerate(jobs.run(faults.uneven, ranks, hosts, backend="gloo" if hosts else "shm")):
        assert report.value.startswith("CollectiveMismatch"), report
        assert "rank 0 sends 8 bytes to rank 1, which expects 4" in report.value
        assert f"rank {rank} and rank {rank}" not in report.value
        assert report.seconds < SOON


def test_a_group_that_has_failed_fails_again_and_never_computes() -> None:
    for first, second in jobs.values(faults.after_a_failure, 2):
        assert first.startswith("CollectiveMismatch")
        assert first == second


def test_nothing_is_in_dev_shm_while_a_group_works_or_after_it() -> None:
    before = sorted(path.name for path in Path("/dev/shm").iterdir())
    for names in jobs.values(faults.traces, 2):
        assert not [name for name in names if name not in before and "accel" in name]


def test_all_groups_together_stay_within_32_mib() -> None:
    for sizes in jobs.values(faults.memory, 2, 8):
        assert 8 << 20 < max(sizes) <= 32 << 20


@pytest.mark.sample("0.09-5000-4-3")
@pytest.mark.parametrize(("ranks", "victim"), [(n, victim) for n in (2, 3, 4) for victim in range(n)])
@pytest.mark.parametrize("size", [1, 5000, 3_000_000])
@pytest.mark.parametrize("after", [0.01, 0.09, 0.28])
def test_rank_is_killed(ranks: int, victim: int, size: int, after: float) -> None:
    reports = jobs.run(faults.killed, ranks, victim, size, after)
    assert [rank for rank, report in enumerate(reports) if report.lost] == [victim]
    assert any(f"rank {victim} has ended" in report.error for report in reports), reports
    for report in reports:
        assert report.lost or ("has ended" in report.error and report.seconds < SOON + 0.3), report


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (faults.interrupted, ["KeyboardInterrupt", ".*rank 0 was interrupted"]),
        (faults.handler_destroys, ["SystemExit", ".*rank 0 was interrupted"]),
        (faults.destroyed_while_pending, [".*rank 1 has left", ""]),
    ],
)
def test_wait_that_is_ended_raises(program: Any, said: list[str]) -> None:
    for found, pattern in zip(jobs.values(program, 2), said, strict=True):
        assert re.match(pattern, found, re.DOTALL), found


def test_abort_ends_a_wait_on_all_ranks_and_gives_the_memory_back() -> None:
    (first, kept), (second, _) = jobs.values(faults.aborted, 2)
    assert "rank 0 was interrupted" in first
    assert "rank 0 was interrupted" in second
    assert kept == 0


def test_a_collective_in_a_signal_handler_is_refused_and_the_one_it_interrupted_goes_on() -> None:
    (outer, within, after), _ = jobs.values(faults.handler_calls, 2)
    assert (outer, after) == ("", "")
    assert "cannot begin within another one" in within


def test_a_child_of_a_rank_whose_thread_is_waiting_is_refused() -> None:
    for said in jobs.values(faults.forked, 2):
        assert len(said) == 2
        assert all("forked after the group was made" in each for each in said), said


TWO_AND_TWO = (0, 0, 1, 1)


@pytest.mark.parametrize(
    ("hosts", "reason"),
    [(TWO_AND_TWO, "2 + 2"), ((0, 0, 0, 1, 1), "3 + 2"), ((0, 1, 0, 1), "2 + 2"), ((0, 0, 1), "2 + 1")],
    ids=lambda value: "".join(map(str, value)),
)
@reduces_right
def test_collectives_of_several_hosts_are_right(hosts: tuple[int, ...], reason: str) -> None:
    done = Counter[str]()
    for found, wrong, calls in jobs.values(faults.collectives, len(hosts), hosts, backend="gloo"):
        assert (found, wrong) == (f"shared memory of {reason} processes on 2 hosts", [])
        done += calls
    assert {function.__name__ for function in shm_random.FUNCTIONS} <= set(done)


@pytest.mark.sample("0-between")
@pytest.mark.parametrize(
    ("victim", "phase"),
    [(2, "within"), (2, "between"), (2, "after"), (3, "within"), (3, "after"), (0, "between")],
)
def test_survivors_of_a_rank_that_is_killed_name_it_or_its_host(victim: int, phase: str) -> None:
    reports = jobs.run(faults.loses, 4, TWO_AND_TWO, victim, phase, backend="gloo")
    for rank, report in enumerate(reports):
        if rank == victim:
            assert report.lost
            continue
        text = f"{report.value}{report.error}"
        assert "CollectiveFailed" in text
        neighbour = TWO_AND_TWO[rank] == TWO_AND_TWO[victim]
        named = f"rank {victim} has ended" if neighbour else f"the host of rank {victim // 2 * 2} was lost"
        assert named in text
        assert report.seconds < SOON


def test_hosts_that_reduce_different_tensors_raise_on_all_ranks() -> None:
    for report in jobs.run(faults.differs, 4, TWO_AND_TWO, [10, 10, 11, 11], backend="gloo"):
        assert report.value.startswith("CollectiveMismatch"), report


def test_different_tensors_of_ranks_of_one_host_are_named_there_and_end_the_other_host() -> None:
    reports = jobs.run(faults.differs, 4, TWO_AND_TWO, [10, 11, 10, 10], backend="gloo")
    for report in reports[:2]:
        assert report.value.startswith("CollectiveMismatch"), report
        assert all(f"all_reduce (sum) of {size} bytes" in report.value for size in (40, 44)), report
    for report in reports[2:]:
        assert report.value.startswith("CollectiveFailed"), report
