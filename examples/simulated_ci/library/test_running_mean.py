# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Each test runs on the CPU, and on the accelerator that torch finds."""

from __future__ import annotations

import pytest
import torch
from running_mean import RunningMean

ACCELERATOR = torch.accelerator.current_accelerator()


@pytest.fixture(params=["cpu", *([ACCELERATOR.type] if ACCELERATOR else [])])
def device(request):
    return torch.device(request.param)


def test_batches_give_the_statistics_of_all_rows(device):
    rows = torch.randn(64, 3, generator=torch.Generator().manual_seed(0)).to(device)
    statistics = RunningMean(3, device=device)
    for part in rows.split(10):
        statistics.update(part)
    scaled = statistics(rows)
    assert scaled.device.type == device.type
    torch.testing.assert_close(scaled.mean(0).cpu(), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(scaled.var(0, unbiased=False).cpu(), torch.ones(3), atol=1e-5, rtol=0)


def test_state_moves_between_devices(device):
    statistics = RunningMean(2, device=device)
    rows = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    statistics.update(rows.to(device))
    other = RunningMean(2)
    other.load_state_dict(statistics.state_dict())
    torch.testing.assert_close(other(rows), statistics(rows.to(device)).cpu())


@pytest.mark.skipif(ACCELERATOR is None, reason="needs an accelerator")
def test_rows_of_another_device_are_an_error():
    statistics = RunningMean(2, device=ACCELERATOR)
    with pytest.raises(RuntimeError, match="device"):
        statistics.update(torch.ones(4, 2))
