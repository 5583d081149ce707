# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the checks: the accelerator, its record and traits, and what a check needs to run."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from accel_core.api import using
from accel_core.interface import DeepSpeedAccelerator
from accel_core.lost_devices import wrong_sum
from accel_core.vendor import Traits, Vendor
from accel_testkit.suite import results
from accel_testkit.suite.expect import expect, fail
from accel_testkit.suite.launch import RankLauncher
from accel_testkit.suite.target import TARGET, Target, traits_of

_DEVICES = {"host": 0, "device": 1, "multi": 2}


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> Target:
    """The accelerator that the command line names."""
    return pytestconfig.stash[TARGET]


@pytest.fixture(scope="session")
def accelerator(target: Target) -> Any:
    """The accelerator under test."""
    return target.construct()


@pytest.fixture(scope="session")
def vendor(target: Target) -> Vendor | None:
    """The vendor's record; never None in a check that is marked `record`."""
    return target.vendor


@pytest.fixture(scope="session")
def traits(accelerator: DeepSpeedAccelerator) -> Traits:
    """The traits that the vendor declares."""
    return traits_of(accelerator)


@pytest.fixture(autouse=True)
def _admission(
    request: pytest.FixtureRequest, accelerator: DeepSpeedAccelerator, traits: Traits
) -> Iterator[None]:
    """Skip what a trait declares missing; fail, never skip, where a device is absent. End the run if one is lost."""
    for marker in request.node.iter_markers("needs"):
        for name in marker.args:
            skip_if_declared(request.node, name, traits)
    tier = results.tier(request.node)
    # A type whose indices are not devices of torch's has no count to go by.
    wanted = min(_DEVICES[tier], 1) if "indexed_devices" in traits else _DEVICES[tier]
    count = accelerator.device_count() if wanted else 0
    expect(
        int(count) >= wanted,
        f"tier {tier} of the conformance suite cannot run",
        found=f"{count} devices of type {accelerator.device_name()}",
        expected=f"at least {wanted}",
        do="run on a machine with the devices, or leave the tier out: --tier host",
    )
    device_type = torch.device(accelerator.device_name()).type
    recorder = request.config.pluginmanager.get_plugin("accel-results")
    with nullcontext() if recorder is None else recorder.operators_called(request.node, device_type):
        yield
    lost = torch.accelerator.is_available() and wrong_sum(torch.accelerator.current_accelerator() or "cpu")
    if wanted and lost:
        request.session.shouldfail = "the device no longer computes: later checks would show nothing"
        fail(
            "the device no longer computes after this check",
            found=lost,
            expected="sums that are right, whatever a check does",
            do="look at this check and at the runtime's log: an operator failed after the call that started it",
        )


def skip_if_declared(item: pytest.Item, name: str, traits: Traits) -> None:
    """Skip a check, with the reason, where the vendor declares the trait."""
    trait = traits.get(name)
    if trait is not None:
        reason = f"{trait.support.value}: {trait.reason}"
        item.user_properties.append((results.TRAIT, {"trait": name, "reason": reason}))
        pytest.skip(f"declared trait {name}: {reason}")


@pytest.fixture(scope="session")
def launcher(target: Target, tmp_path_factory: pytest.TempPathFactory) -> RankLauncher:
    """A launcher of ranks."""
    return RankLauncher(target, tmp_path_factory.mktemp("ranks"))


@pytest.fixture
def device(accelerator: DeepSpeedAccelerator) -> torch.device:
    """The current device, as torch names it."""
    return torch.device(accelerator.device())


@pytest.fixture
def op(request: pytest.FixtureRequest, accelerator: DeepSpeedAccelerator) -> Any:
    """The op that the check needs."""
    return accelerator.create_op_builder(request.node.get_closest_marker("needs").args[0]).load()


@pytest.fixture
def second(accelerator: DeepSpeedAccelerator) -> Iterator[int]:
    """Index of a second device; the first one is the current device again afterwards."""
    accelerator.set_device(0)
    yield 1
    accelerator.set_device(0)


@pytest.fixture
def upstream(accelerator: DeepSpeedAccelerator) -> Iterator[Any]:
    """Stock deepspeed, with the accelerator under test as its accelerator."""
    with using(accelerator):
        try:
            deepspeed = importlib.import_module("deepspeed")
        except ImportError as error:
            fail(
                "the checks against DeepSpeed cannot run",
                found=f"{type(error).__name__}: {error}",
                expected="stock deepspeed, installed with the vendor package",
                do="pip install 'accel-testkit[deepspeed]'",
            )
        yield deepspeed
