# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the conformance suite that the engine's runs need, and the runs themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from threading import Lock
from typing import Any

import pytest

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Traits
from accel_testkit.engine.compare import Comparison
from accel_testkit.engine.configurations import MATRIX, Configuration
from accel_testkit.engine.runs import Runs
from accel_testkit.suite import results
from accel_testkit.suite.conftest import _admission, accelerator, launcher, skip_if_declared, target, traits
from accel_testkit.suite.launch import RankLauncher

__all__ = ["_admission", "accelerator", "comparison", "launcher", "runs", "target", "traits"]

_OPS = {"fused": "FusedAdamBuilder", "host": "CPUAdamBuilder"}


@pytest.fixture(scope="session")
def runs(
    launcher: RankLauncher, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runs]:
    """The results of all ranks; one set of processes trains every configuration that this session asks for."""
    parameters = [getattr(item, "callspec", None) for item in request.session.items]
    names = {
        spec.params["configuration"].name for spec in parameters if spec and "configuration" in spec.params
    }
    chosen = [configuration for configuration in MATRIX if configuration.name in names]
    with Runs(launcher, chosen, tmp_path_factory.mktemp("checkpoints"), _noting(request.config)) as found:
        yield found


def _noting(config: pytest.Config) -> Callable[[str], None]:
    """Return a function that prints the progress of runs and streams it to drivers, which end runs without progress."""
    recorder, terminal, capture = map(
        config.pluginmanager.get_plugin, ("accel-results", "terminalreporter", "capturemanager")
    )
    one_at_a_time = Lock()

    def note(text: str) -> None:
        with one_at_a_time, capture.global_and_fixture_disabled() if capture else nullcontext():
            if recorder is not None:
                recorder.note(text)
            if terminal is not None:
                terminal.ensure_newline()
                terminal.write_line(text)

    return note


@pytest.fixture
def comparison(
    configuration: Configuration,
    accelerator: DeepSpeedAccelerator,
    traits: Traits,
    request: pytest.FixtureRequest,
) -> Comparison:
    """The comparison of this configuration's runs; skipped where the vendor declares its type, op or stage missing."""
    item = request.node
    ranks = "zero3_ranks" if configuration.stage == 3 and results.tier(item) == "multi" else ""
    for name in (configuration.dtype, _OPS.get(configuration.optimizer, ""), ranks):
        skip_if_declared(item, name, traits)

    def record(figures: dict[str, Any]) -> None:
        item.user_properties.append((results.FIGURES, figures))

    def refused(found: list[Any]) -> None:
        """Skip after checking that DeepSpeed refuses the type, as the accelerator says that it has none."""
        dtype = configuration.dtype
        for rank in found:
            assert f"Type {dtype} is not supported" in str(rank), f"{dtype} is denied, and yet: {rank}"
        reason = f"the accelerator says that this device has no {dtype}, and DeepSpeed refuses it"
        item.user_properties.append((results.TRAIT, {"trait": dtype, "reason": reason}))
        pytest.skip(reason)

    has = {"bf16": accelerator.is_bf16_supported, "fp16": accelerator.is_fp16_supported}
    denied = not has.get(configuration.dtype, lambda: True)()
    exact = results.computes_as_host() or accelerator.device_name() == "cpu"
    return Comparison(configuration, refused if denied else None, exact, record)
