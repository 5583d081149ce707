# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Every configuration trains with the losses of plain PyTorch, on one rank and on two."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from accel_testkit.engine import rank, reference
from accel_testkit.engine.configurations import MATRIX, Configuration
from accel_testkit.suite.launch import Launcher

#: Largest difference of a loss from plain PyTorch on the CPU, relative to losses above 1.
TOLERANCE = {"fp32": 1e-6, "bf16": 2e-3, "fp16": 2e-3}
_QUICK = [configuration for configuration in MATRIX if configuration.quick]


@pytest.fixture(scope="session")
def runs(launcher: Launcher, pytestconfig: pytest.Config) -> Any:
    """Answers of all ranks by their number; one set of processes trains every configuration."""

    @cache
    def run(ranks: int) -> list[dict[str, Any]]:
        quick = "1" if pytestconfig.getoption("quick") else "0"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(rank.QUICK, quick)
            return launcher.run("accel_testkit.engine.rank", ranks)

    return run


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a configuration of the subset that was asked for."""
    if "configuration" in metafunc.fixturenames:
        chosen = _QUICK if metafunc.config.getoption("quick") else MATRIX
        metafunc.parametrize("configuration", chosen, ids=lambda c: c.name.replace(" ", "-"))


@cache
def _plain(dtype: str, accumulate: int) -> list[float]:
    return reference.losses(Configuration("plain", dtype, accumulate=accumulate))


def _check(answers: list[dict[str, Any]], configuration: Configuration) -> None:
    broken = [answer for answer in answers if not isinstance(answer.get(configuration.name), list)]
    if broken:
        pytest.fail(
            f"{configuration.name}: {broken[0].get(configuration.name) or broken[0].get('error')}",
            pytrace=False,
        )
    found = [
        sum(values) / len(answers) for values in zip(*(a[configuration.name] for a in answers), strict=True)
    ]
    wanted = _plain(configuration.dtype, configuration.accumulate)
    worst = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(found, wanted, strict=True))
    assert worst <= TOLERANCE[configuration.dtype], f"off by {worst:g}: {found} instead of {wanted}"
    assert found[-1] < 0.8 * found[0], f"nothing was learned: {found}"


@pytest.mark.tier("device")
def test_one_rank(runs: Any, configuration: Configuration) -> None:
    """One rank gives the losses of plain PyTorch."""
    _check(runs(1), configuration)


@pytest.mark.tier("multi")
def test_two_ranks(runs: Any, configuration: Configuration) -> None:
    """Two ranks, each with half of every batch, give the losses of the whole batch."""
    _check(runs(2), configuration)
