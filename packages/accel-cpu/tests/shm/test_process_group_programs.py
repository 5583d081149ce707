# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs of torch and DeepSpeed compute the same on `shm` as on gloo, and groups leave nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import shm_jobs as jobs
import shm_programs as programs


def _values(function: Any, ranks: int, *arguments: Any, backend: str = "shm") -> list[Any]:
    reports = jobs.run(function, ranks, *arguments, backend=backend)
    for report in reports:
        assert not report.error, report.error
        assert not report.lost
    return [report.value for report in reports]


@pytest.mark.parametrize("program", [programs.ddp, programs.fsdp, programs.functionals, programs.handles])
def test_torchs_programs_compute_the_same_as_on_gloo(program: Any) -> None:
    # Two ranks: a sum of two numbers does not depend on the order.
    assert _values(program, 2) == _values(program, 2, backend="gloo")


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_deepspeeds_losses_are_those_on_gloo(stage: int) -> None:
    assert _values(programs.zero, 2, stage) == _values(programs.zero, 2, stage, backend="gloo")


def test_many_groups_leave_no_descriptor_and_no_memory() -> None:
    for before, after, reasons in _values(programs.many_groups, 3, 30):
        assert all(now <= was for now, was in zip(after, before, strict=True)), (before, after)
        assert all(reason.startswith("shared memory") for reason in reasons), reasons


def test_the_default_group_can_be_made_again(tmp_path: Path) -> None:
    assert _values(programs.again, 2, str(tmp_path)) == [[3.0] * 4] * 2
