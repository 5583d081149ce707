# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op numerics: DeepSpeed's optimizers on this device's ops, against steps in float64."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import Holds, expect
from accel_testkit.suite.op_steps import STEPS

pytestmark = pytest.mark.tier("device")

_SETTINGS = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-8, "weight_decay": 0.1}
_STEPS = 3
#: id: (builder, DeepSpeed's optimizer, arguments beside the settings, the reference's variant)
_CASES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "FusedAdam-AdamW": ("FusedAdamBuilder", "adam:FusedAdam", {}, "AdamW"),
    "FusedAdam-Adam": ("FusedAdamBuilder", "adam:FusedAdam", {"adam_w_mode": False}, "Adam"),
    "CPUAdam-AdamW": ("CPUAdamBuilder", "adam:DeepSpeedCPUAdam", {}, "AdamW"),
    "CPUAdam-Adam": ("CPUAdamBuilder", "adam:DeepSpeedCPUAdam", {"adamw_mode": False}, "Adam"),
    "CPUAdagrad": ("CPUAdagradBuilder", "adagrad:DeepSpeedCPUAdagrad", {}, "Adagrad"),
    "CPULion": ("CPULionBuilder", "lion:DeepSpeedCPULion", {}, "Lion"),
}


@pytest.mark.usefixtures("upstream")
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.needs(case[0])) for name, case in _CASES.items()]
)
def test_optimizer_steps_are_right(accelerator: DeepSpeedAccelerator, case: str) -> None:
    """Steps of DeepSpeed's optimizer on the device's op equal those in float64, within float32's precision."""
    builder, path, arguments, variant = _CASES[case]
    _expect_compatible(accelerator, builder)
    step, (module, _, name) = STEPS[builder], path.partition(":")
    taken = {key: each for key, each in _SETTINGS.items() if key in (*step.keys, "weight_decay")}
    optimizer = getattr(importlib.import_module(f"deepspeed.ops.{module}"), name)
    place = torch.device(accelerator.device() if step.on_device else "cpu")
    generator = torch.Generator().manual_seed(7)
    # Sizes around the vector widths of kernels, and one that fills no vector.
    start, *grads = (
        [torch.rand(shape, generator=generator) - 0.5 for shape in [(1,), (31, 3), (257,)]]
        for _ in range(1 + _STEPS)
    )
    params = [torch.nn.Parameter(tensor.to(place, copy=True)) for tensor in start]
    made = optimizer(params, **taken, **arguments)
    wanted = [[tensor.double(), *[torch.zeros_like(tensor).double()] * step.states] for tensor in start]
    values = {**taken, "decay": _SETTINGS["weight_decay"], **step.variants[variant]}
    for number, some in enumerate(grads, 1):
        for param, grad in zip(params, some, strict=True):
            # DeepSpeed's host Adagrad leaves its update in the gradient.
            param.grad = grad.to(place, copy=True)
        made.step()
        wanted = [
            step.wanted({**values, "step": number}, grad.double(), *each)
            for grad, each in zip(some, wanted, strict=True)
        ]
    holds = Holds()
    for param, (exact, *_) in zip(params, wanted, strict=True):
        holds.near(f"{tuple(param.shape)} after {_STEPS} steps on numbers below 1", param, exact, 1e-5)
    what = f"{name} on {accelerator.device_name()}"
    holds.expect(what, f"compare the op that {builder} loads with the optimizer's paper")


def _expect_compatible(accelerator: DeepSpeedAccelerator, name: str) -> None:
    builder = accelerator.create_op_builder(name)
    expect(
        builder.is_compatible(),
        f"{name} is not declared missing and cannot be loaded",
        found=getattr(builder, "reason", "is_compatible() is False"),
        expected="an op that loads on this machine",
        do="provide what the reason names, or declare the trait",
    )
