# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The suite can fail: every broken variant is noticed by the checks meant for it, and by no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accel_testkit import suite


def test_variant_fails_its_checks(variant: Any, run_variant: Any) -> None:
    """The files that have these checks are run, where the variant is no slow one."""
    _expect_failures(variant, run_variant(variant, *variant.files))


@pytest.mark.slow
def test_variant_fails_no_other_check(variant: Any, run_variant: Any) -> None:
    """Every file is run whose checks the variant has to name."""
    _expect_failures(variant, run_variant(variant, *filter(variant.counts, _files())))


def _files() -> set[str]:
    return {path.stem.removeprefix("test_") for path in Path(suite.__file__).parent.glob("test_*.py")}


def _expect_failures(variant: Any, outcome: Any) -> None:
    if "*" in variant.fails:
        assert not outcome.ids("passed")
    else:
        assert variant.counted(outcome.ids("failed")) - set(variant.perhaps) == set(variant.fails)
