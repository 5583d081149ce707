# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of host steps notice: gradients that are not added, sums in float32, copies told too early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from accel_ops.op_builder import CPULionBuilder
from broken import breaks
from broken.by_rule_ops import _Changed, with_builder


def _register(name: str, *fails: str, **functions: Callable[..., Any]) -> None:
    """Register a variant whose Lion on the host offers these functions, some of them broken."""

    def load(self: Any, verbose: bool = True) -> Any:
        return _Changed(CPULionBuilder().load(), functions)

    breaks(*fails, name=name)(with_builder("CPULionBuilder", load=load))


def _replaced(
    op: Any, grad: Any, destination: Any = None, *, accumulated: Any = None, add: bool = False
) -> Any:
    return op.copy_gradient(grad, destination, accumulated=accumulated)


def _in_float32(op: Any, tensor: torch.Tensor) -> float:
    return float(tensor.float().square().sum())


def _told_before(op: Any, *, grad_factor: float = 1.0, copy: Any = None, copied: Any = None) -> Any:
    if copied is not None:
        copied(0, copy.numel())
    return op.fused(grad_factor=grad_factor, copy=copy)


_CHECKS = "op_host"
_register(
    "GradientsAreNotAdded",
    f"{_CHECKS}.gradients_are_copied_and_summed[CPULionBuilder]",
    copy_gradient=_replaced,
)
_register(
    "SquaresAreSummedInFloat32",
    f"{_CHECKS}.squares_are_summed_in_float64[CPULionBuilder]",
    sum_of_squares=_in_float32,
)
_register(
    "CopiesAreToldTooEarly",
    f"{_CHECKS}.fused_steps_are_steps[CPULionBuilder-bf16]",
    f"{_CHECKS}.fused_steps_are_steps[CPULionBuilder-fp16]",
    fused=_told_before,
)
