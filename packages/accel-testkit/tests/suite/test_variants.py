# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The suite can fail: every broken variant is noticed by the checks meant for it, and by no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def run_variant(
    run_suite: Any, site: Any, install_site: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Runs the suite on a variant."""

    def run(variant: Any) -> Any:
        if variant.patch is not None:
            variant.patch(site, monkeypatch)
        install_site()
        if variant.kind is None:
            return run_suite("accel_testkit.suite", "--accel", "good", started=variant.started)
        if variant.started:
            dotted = f"{variant.kind.__module__}:{variant.kind.__name__}"
            return run_suite("accel_testkit.suite", "--accel-class", dotted, started=variant.started)
        monkeypatch.setattr("accel_good.accelerator.GOOD_Accelerator", variant.kind)
        return run_suite("accel_testkit.suite", "--accel", "good")

    return run


def test_variant_fails_the_checks_meant_for_it(variant: Any, run_variant: Any) -> None:
    outcome = run_variant(variant)
    found = {_short(check, variant.fails) for check in outcome.ids("failed")}
    if "*" in variant.fails:
        assert not outcome.ids("passed")
    else:
        assert found == set(variant.fails)


def _short(check: str, wanted: tuple[str, ...]) -> str:
    """The id without its parameter, where that is what is listed."""
    name = check.partition("[")[0]
    return name if name in wanted else check
