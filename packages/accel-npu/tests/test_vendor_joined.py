# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed is joined to this package also where torch_npu, imported ahead of torch, kept torch from doing it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.upstream

SHOW = "from deepspeed.accelerator import get_accelerator; print(type(get_accelerator()).__module__)"


@pytest.mark.parametrize(
    "first", ["import torch_npu, accel_npu", "import torch, torch_npu", "import deepspeed"]
)
def test_deepspeed_has_this_accelerator_whatever_is_imported_first(first: str) -> None:
    sim = pytest.importorskip("accel_sim", reason="not run: package accel-testkit; tox -e npu runs it")
    base = {name: value for name, value in os.environ.items() if name != "DS_ACCELERATOR"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{first}; {SHOW}"],
        env=sim.environment("npu", base=base), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["accel_npu.accelerator"], done.stderr[-2000:]
