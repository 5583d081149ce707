# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Windows of text: a step's batch is known from its number, and an epoch shows all text once."""

from __future__ import annotations

import torch
from byte_lm.batches import TrainingWindows, validation_windows

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
