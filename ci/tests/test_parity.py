# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the comparison with DeepSpeed's classes calls, and which differences it accepts."""

import pytest

from ci import parity

ROW = {"calls": "range_*, seed()", "devices": "cpu xpu", "ours": "[0-9]*", "deepspeed": ">=0.19"}


@pytest.mark.parametrize(
    ("device", "call", "ours", "release", "said"),
    [
        ("cpu", "range_push(msg)", "2", "0.19.8", "said"),
        ("xpu", "seed()", "2", "0.20.0", "said"),
        ("npu", "seed()", "2", "0.19.8", ""),
        ("cpu", "seed(seed)", "2", "0.19.8", ""),
        ("cpu", "seed()", "2", "0.18.9", ""),
        ("cpu", "seed()", "raises TypeError", "0.19.8", ""),
    ],
)
def test_difference_is_meant_where_a_row_fits(
    device: str, call: str, ours: str, release: str, said: str
) -> None:
    row = {**ROW, "reason": "said"}
    assert parity.reason((device, call, "1", ours), release, [row]) == said
