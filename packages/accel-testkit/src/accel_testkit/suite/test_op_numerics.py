# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op numerics: DeepSpeed's optimizers on this device's ops, against PyTorch's in float64."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect, largest

pytestmark = pytest.mark.tier("device")

Parameters = list[torch.Tensor]
_LR, _BETAS, _DECAY, _EPS = 0.05, (0.8, 0.95), 0.1, 1e-8
_STEPS = 3
#: Sizes around the vector widths of kernels, and one that fills no vector.
_SHAPES = [(1,), (31, 3), (257,)]


class _Lion(torch.optim.Optimizer):
    """Lion by its paper (Chen et al., arXiv:2302.06675), which torch has not."""

    def __init__(self, params: Parameters) -> None:
        super().__init__(params, {})
        self.moments = [torch.zeros_like(param) for param in params]

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for param, moment in zip(self.param_groups[0]["params"], self.moments, strict=True):
            direction = torch.sign(_BETAS[0] * moment + (1 - _BETAS[0]) * param.grad)
            param.sub_(_LR * (direction + _DECAY * param))
            moment.mul_(_BETAS[1]).add_(param.grad, alpha=1 - _BETAS[1])


def _adam(decoupled: bool) -> Callable[[Parameters], torch.optim.Optimizer]:
    optimizer = torch.optim.AdamW if decoupled else torch.optim.Adam
    return lambda params: optimizer(params, lr=_LR, betas=_BETAS, eps=_EPS, weight_decay=_DECAY)


def _adagrad(params: Parameters) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(params, lr=_LR, eps=_EPS, weight_decay=_DECAY)


_ADAM = {"lr": _LR, "betas": _BETAS, "eps": _EPS, "weight_decay": _DECAY}
#: id: (builder, DeepSpeed's optimizer, its arguments, on the device, the reference)
_CASES: dict[str, tuple[str, str, dict[str, Any], bool, Callable[[Parameters], torch.optim.Optimizer]]] = {
    "FusedAdam-AdamW": ("FusedAdamBuilder", "adam:FusedAdam", _ADAM, True, _adam(True)),
    "FusedAdam-Adam": (
        "FusedAdamBuilder",
        "adam:FusedAdam",
        {**_ADAM, "adam_w_mode": False},
        True,
        _adam(False),
    ),
    "CPUAdam-AdamW": ("CPUAdamBuilder", "adam:DeepSpeedCPUAdam", _ADAM, False, _adam(True)),
    "CPUAdam-Adam": (
        "CPUAdamBuilder",
        "adam:DeepSpeedCPUAdam",
        {**_ADAM, "adamw_mode": False},
        False,
        _adam(False),
    ),
    "CPUAdagrad": (
        "CPUAdagradBuilder",
        "adagrad:DeepSpeedCPUAdagrad",
        {"lr": _LR, "eps": _EPS, "weight_decay": _DECAY},
        False,
        _adagrad,
    ),
    "CPULion": (
        "CPULionBuilder",
        "lion:DeepSpeedCPULion",
        {"lr": _LR, "betas": _BETAS, "weight_decay": _DECAY},
        False,
        _Lion,
    ),
}


@pytest.mark.usefixtures("upstream")
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.needs(c[0])) for name, c in _CASES.items()]
)
def test_optimizer_steps_are_right(accelerator: DeepSpeedAccelerator, case: str) -> None:
    """Steps of DeepSpeed's optimizer on the device's op equal PyTorch's in float64, within float32's precision."""
    builder, path, arguments, on_device, reference = _CASES[case]
    _expect_compatible(accelerator, builder)
    module, _, name = path.partition(":")
    optimizer = getattr(importlib.import_module(f"deepspeed.ops.{module}"), name)
    start, grads = _random_tensors()
    device = accelerator.device() if on_device else torch.device("cpu")
    found = _stepped(lambda params: optimizer(params, **arguments), start, grads, device, torch.float32)
    wanted = _stepped(reference, start, grads, torch.device("cpu"), torch.float64)
    error = largest(float((a.cpu().double() - b).abs().max()) for a, b in zip(found, wanted, strict=True))
    expect(
        error < 1e-5,
        f"{name} computes wrongly on {accelerator.device_name()}",
        found=f"an error of {error:g} after {_STEPS} steps on numbers below 1",
        expected="at most 1e-05 beside float64",
        do=f"compare the op that {builder} loads with the optimizer's paper",
    )


def _expect_compatible(accelerator: DeepSpeedAccelerator, name: str) -> None:
    builder = accelerator.create_op_builder(name)
    expect(
        builder.is_compatible(),
        f"{name} is not declared missing and cannot be loaded",
        found=getattr(builder, "reason", "is_compatible() is False"),
        expected="an op that loads on this machine",
        do="provide what the reason names, or declare the trait",
    )


def _random_tensors() -> tuple[Parameters, list[Parameters]]:
    generator = torch.Generator().manual_seed(7)

    def tensors() -> Parameters:
        return [torch.rand(shape, generator=generator, dtype=torch.float32) - 0.5 for shape in _SHAPES]

    return tensors(), [tensors() for _ in range(_STEPS)]


def _stepped(
    make: Callable[[Parameters], Any],
    start: Parameters,
    grads: list[Parameters],
    device: torch.device,
    dtype: torch.dtype,
) -> Parameters:
    params: Parameters = [
        torch.nn.Parameter(tensor.to(device=device, dtype=dtype, copy=True)) for tensor in start
    ]
    optimizer = make(params)
    for step in grads:
        for param, grad in zip(params, step, strict=True):
            # A copy: DeepSpeed's host Adagrad leaves its update in the gradient.
            param.grad = grad.to(device=device, dtype=dtype, copy=True)
        optimizer.step()
    return [param.detach() for param in params]
