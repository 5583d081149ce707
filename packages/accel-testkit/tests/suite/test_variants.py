# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The suite can fail: every broken variant is noticed by the checks meant for it."""

from typing import Any


def test_variant_fails_its_checks(variant: Any, run_variant: Any) -> None:
    outcome = run_variant(variant)
    if "*" in variant.fails:
        assert not outcome.ids("passed")
    else:
        assert not variant.unnoticed(outcome.ids("failed"))
