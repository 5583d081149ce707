# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op steps: DeepSpeed's optimizers on the ops of the device. Samples of the steps are in the specs of ops."""

from __future__ import annotations

import importlib

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.ops.optimizers import OPTIMIZERS
from accel_testkit.suite.ops.spec import Numbers, Values

pytestmark = pytest.mark.tier("device")

_SETTINGS: Values = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-8, "weight_decay": 0.1}
#: id: (builder, DeepSpeed's optimizer, its argument in addition to the settings)
_CASES: dict[str, tuple[str, str, Values]] = {
    "FusedAdam-AdamW": ("FusedAdamBuilder", "adam:FusedAdam", {"adam_w_mode": True}),
    "FusedAdam-Adam": ("FusedAdamBuilder", "adam:FusedAdam", {"adam_w_mode": False}),
    "CPUAdam-AdamW": ("CPUAdamBuilder", "adam:DeepSpeedCPUAdam", {"adamw_mode": True}),
    "CPUAdam-Adam": ("CPUAdamBuilder", "adam:DeepSpeedCPUAdam", {"adamw_mode": False}),
    "CPUAdagrad": ("CPUAdagradBuilder", "adagrad:DeepSpeedCPUAdagrad", {}),
    "CPULion": ("CPULionBuilder", "lion:DeepSpeedCPULion", {}),
}


@pytest.mark.usefixtures("upstream")
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.needs(case[0])) for name, case in _CASES.items()]
)
def test_optimizer_steps_are_right(
    accelerator: DeepSpeedAccelerator, device: torch.device, case: str
) -> None:
    """Steps of DeepSpeed's optimizer on the device's op equal those in float64, within float32's precision."""
    name, path, mode = _CASES[case]
    builder, of, (module, _, cls) = accelerator.create_op_builder(name), OPTIMIZERS[name], path.partition(":")
    holds = Holds({f"it loads: {getattr(builder, 'reason', '')}": builder.is_compatible()})
    holds.expect(f"{name}, not declared missing,", "provide what the reason names, or declare the trait")
    taken = {key: value for key, value in _SETTINGS.items() if key in of.keys}
    optimizer = getattr(importlib.import_module(f"deepspeed.ops.{module}"), cls)
    place, new = torch.device("cpu") if of.host else device, Numbers(torch.float32)
    # Sizes around the vector widths of kernels, and one that fills no vector.
    start = [new(*shape, times=0.5) for shape in ((1,), (31, 3), (257,))]
    params = [torch.nn.Parameter(tensor.to(place, torch.float32)) for tensor in start]
    made = optimizer(params, **taken, **mode)
    wanted = [[tensor, *[torch.zeros_like(tensor)] * of.states] for tensor in start]
    decoupled = {"decoupled": all(mode.values())} if mode else {}
    for number in (1, 2, 3):
        grads = [new(*tensor.shape, times=0.5) for tensor in start]
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad.to(place, torch.float32)
        made.step()
        wanted = [
            of.reference(grad, *each, **taken, **decoupled, step=number)
            for grad, each in zip(grads, wanted, strict=True)
        ]
    for param, (exact, *_) in zip(params, wanted, strict=True):
        holds.near(f"{tuple(param.shape)} after three steps on numbers below 1", param, exact, 1e-5)
    what = f"{cls} on {accelerator.device_name()}"
    holds.expect(what, f"compare the op that {name} loads with the optimizer's paper")
