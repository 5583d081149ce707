# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import torch
from byte_lm.training import LAST_RATE, SETTLED, Schedule, TrainingWindows, rate_factor, validation_windows

TEXT = bytes(range(256)) * 5  # 1280 bytes: 79 windows of 16


def test_targets_are_the_inputs_one_byte_later() -> None:
    inputs, targets = TrainingWindows(TEXT, 16, seed=1).batch(0, 4)
    assert inputs.shape == targets.shape == (4, 16)
    assert torch.equal(targets, (inputs + 1) % 256)


def test_an_epoch_shows_every_window_once() -> None:
    windows = TrainingWindows(bytes(range(250)), 16, seed=1)
    inputs, _ = windows.batch(0, windows.count)
    assert sorted(inputs[:, 0].tolist()) == list(range(0, 16 * windows.count, 16))


def test_epochs_and_seeds_differ_in_order() -> None:
    windows, other = TrainingWindows(TEXT, 16, seed=1), TrainingWindows(TEXT, 16, seed=2)
    first, _ = windows.batch(0, windows.count)
    second, _ = windows.batch(windows.count, windows.count)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other.batch(0, other.count)[0])


def test_a_batch_is_the_same_whatever_came_before() -> None:
    after_others = TrainingWindows(TEXT, 16, seed=1)
    for first in range(0, 200, 8):
        after_others.batch(first, 8)
    fresh = TrainingWindows(TEXT, 16, seed=1)
    assert torch.equal(after_others.batch(72, 16)[0], fresh.batch(72, 16)[0])  # across the end of an epoch


def test_ranks_validate_on_as_many_windows_each() -> None:
    assert len(validation_windows(TEXT, 16, most=1000, ranks=2)) == 78
    spread = validation_windows(TEXT, 16, most=10, ranks=3)
    assert [int(window[0]) for window in spread] == [i * 79 // 9 * 16 % 256 for i in range(9)]
    assert {len(window) for window in spread} == {17}


def test_in_good_time_the_clock_changes_nothing() -> None:
    schedule = Schedule(steps=100, seconds=50)
    assert all(schedule.progress(step, elapsed=0.3 * step) == step / 100 for step in range(101))


def test_a_slow_machine_ends_in_time_and_early() -> None:
    schedule = Schedule(steps=100, seconds=50)
    assert schedule.progress(30, elapsed=25) == 0.5
    assert schedule.progress(60, elapsed=50) == 1.0


def test_a_slow_first_step_is_no_reason_to_hurry() -> None:
    assert Schedule(steps=100, seconds=50).progress(SETTLED - 1, elapsed=45) == (SETTLED - 1) / 100


def test_a_resumed_run_has_the_time_for_what_is_left() -> None:
    schedule = Schedule(steps=100, first=60, seconds=50)
    assert schedule.progress(60, elapsed=0) == 0.6
    assert schedule.progress(60 + SETTLED, elapsed=25) == pytest.approx(0.8)


def test_the_rate_rises_to_its_peak_and_falls_to_its_floor() -> None:
    rates = [rate_factor(step / 1000) for step in range(1001)]
    top = rates.index(max(rates))
    assert rates[0] == 0
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[top] > 0.98
    assert rates[-1] == pytest.approx(LAST_RATE)
