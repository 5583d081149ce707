# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op settings: loading an op and calling it leave what holds for the whole process as it was."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite import op_steps
from accel_testkit.suite.expect import expect
from accel_testkit.suite.op_steps import STEPS
from accel_testkit.suite.test_op_devices import USES

pytestmark = pytest.mark.tier("device")

_HOST = torch.device("cpu")  # torch's name for host memory, not the vendor of that name
_STEPS_OF_THE_HOST = [name for name, step in STEPS.items() if not step.on_device]
_NAMES = [pytest.param(name, marks=pytest.mark.needs(name)) for name in (*USES, *_STEPS_OF_THE_HOST)]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """Another number of threads than an op would choose."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def _settings(accelerator: DeepSpeedAccelerator) -> dict[str, Any]:
    return {
        "torch's threads": torch.get_num_threads(),
        "the default type": torch.get_default_dtype(),
        "gradients enabled": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "precision of products": torch.get_float32_matmul_precision(),
        "subnormal numbers": float(torch.tensor(1e-39) * 1),
        "torch's random state": hash(tuple(torch.get_rng_state().tolist())),
        "Python's random state": hash(random.getstate()),
        "the device's random state": hash(tuple(accelerator.get_rng_state().tolist())),
        "filters of warnings": len(warnings.filters),
        "the folder": os.getcwd(),
        "default device": str(torch.empty(0).device),
    }


def _use(op: Any, name: str, accelerator: DeepSpeedAccelerator) -> None:
    if name in USES:
        USES[name](op, torch.device(accelerator.device_name(accelerator.current_device())))
        return
    step = STEPS[name]
    values = {**step.schedule()[0], **next(iter(step.variants.values())), "id": op_steps.FIRST_ID}
    op_steps.create(op, name, op_steps.FIRST_ID, next(iter(step.variants.values())))
    step.call(op, [[torch.ones(33, device=_HOST)] for _ in range(2 + step.states)], values)
    op_steps.destroy(op, name, op_steps.FIRST_ID)


@pytest.mark.parametrize("name", _NAMES)
def test_op_leaves_settings(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Threads, default type, gradient mode, random states and the like are after an op's use what they were before."""
    builder = accelerator.create_op_builder(name)
    if not builder.is_compatible():
        return
    changed = []
    before = _settings(accelerator)
    op = builder.load()
    for when in ("load()", "the first call", "the second call"):
        if when != "load()":
            _use(op, name, accelerator)
        after = _settings(accelerator)
        changed += [f"{what} is {after[what]} after {when}" for what in before if after[what] != before[what]]
        before = after
    expect(
        not changed,
        f"{name} changes settings of the process",
        found="; ".join(changed),
        expected="every setting as it was: data loaders, models and other ops depend on them",
        do="set what a kernel needs in a context that restores it, and draw no random numbers",
    )
