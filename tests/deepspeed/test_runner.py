# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's own tests on our accelerators, and the runner that judges by them."""

import importlib.util
import os
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location(
    "deepspeed_tests_runner", Path(__file__).with_name("runner.py")
)
runner = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(runner)


@pytest.mark.slow
@pytest.mark.skipif(
    "ACCEL_DEEPSPEED_TESTS" not in os.environ, reason="ACCEL_DEEPSPEED_TESTS names no checkout"
)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("subset", "accel"),
    [(name, accel) for name, subset in runner.subsets().items() for accel in subset["on"]],
)
def test_subset_fails_nowhere_but_where_the_table_says(subset, accel, tmp_path):
    runner.unpack(tmp_path)
    rows = runner.run(tmp_path, subset, accel, "ours")
    failed = [row for row in rows if row["outcome"] == "failed" and not runner.excuse(row, accel, "ours")]
    assert not failed
    assert any(row["outcome"] == "passed" for row in rows)  # a file that skips itself shows nothing
