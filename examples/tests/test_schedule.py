# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""How far a run is: its steps decide, unless the machine is too slow to take them all in time."""

from __future__ import annotations

import pytest
from byte_lm.schedule import LAST_RATE, SETTLED, Schedule, rate_factor


def test_in_good_time_the_clock_changes_nothing() -> None:
    schedule = Schedule(steps=100, seconds=50)
    assert [schedule.progress(step, elapsed=0.3 * step) for step in range(101)] == [
        s / 100 for s in range(101)
    ]


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
