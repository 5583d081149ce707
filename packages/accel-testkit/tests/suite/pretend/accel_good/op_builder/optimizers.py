# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Optimizer ops in plain torch, under upstream's function names and arguments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from typing_extensions import override

from accel_core.op_builder import Implementation, OpBuilder
from accel_ops.fused_optimizers import multi_tensor_adam

_groups: dict[int, bool] = {}


class PlainTorch(OpBuilder):
    """A builder whose op is always there."""

    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.PLAIN,)
    FUNCTIONS: ClassVar[dict[str, Any]]

    @override
    def compatibility(self) -> tuple[bool, str]:
        """Always."""
        return True, "computed by plain torch"

    @override
    def load(self, verbose: bool = True) -> Any:
        """The functions."""
        return SimpleNamespace(**self.FUNCTIONS)

    @override
    def sources(self) -> list[str]:
        """One, so that there is something to look for."""
        return ["csrc/nothing.c"]


def _create_adam(
    op: int, lr: float, b1: float, b2: float, eps: float, decay: float, adamw: bool, log: bool
) -> None:
    _groups[op] = adamw


def _adam_update(op: int, step: int, *args: Any) -> None:
    lr, b1, b2, eps, decay, correct, param, grad, exp_avg, exp_avg_sq = args
    lists = [[grad], [param], [exp_avg], [exp_avg_sq]]
    multi_tensor_adam(0, param, lists, lr, b1, b2, eps, step, _groups[op], correct, decay)


def _adagrad_update(op: int, step: int, lr: float, eps: float, decay: float, *tensors: torch.Tensor) -> None:
    param, grad, squares = (tensor.detach().float() for tensor in tensors)
    grad = grad + decay * param
    squares = squares + grad * grad
    tensors[0].detach().copy_(param - lr * grad / (squares.sqrt() + eps))
    tensors[2].copy_(squares)


def _lion_update(
    op: int, step: int, lr: float, b1: float, b2: float, decay: float, *tensors: torch.Tensor
) -> None:
    param, grad, moment = (tensor.detach().float() for tensor in tensors)
    direction = torch.sign(b1 * moment + (1 - b1) * grad)
    tensors[0].detach().copy_(param - lr * (direction + decay * param))
    tensors[2].copy_(b2 * moment + (1 - b2) * grad)


def _nothing(*args: Any) -> None:
    pass


class FusedAdamBuilder(PlainTorch):
    """Adam over lists of tensors."""

    NAME = "fused_adam"
    BUILD_VAR = "DS_BUILD_FUSED_ADAM"
    FUNCTIONS: ClassVar[dict[str, Any]] = {"multi_tensor_adam": multi_tensor_adam}


class CPUAdamBuilder(PlainTorch):
    """Adam on the host."""

    NAME = "cpu_adam"
    BUILD_VAR = "DS_BUILD_CPU_ADAM"
    FUNCTIONS: ClassVar[dict[str, Any]] = {
        "create_adam": _create_adam,
        "adam_update": _adam_update,
        "destroy_adam": _nothing,
    }


class CPUAdagradBuilder(PlainTorch):
    """Adagrad on the host."""

    NAME = "cpu_adagrad"
    BUILD_VAR = "DS_BUILD_CPU_ADAGRAD"
    FUNCTIONS: ClassVar[dict[str, Any]] = {
        "create_adagrad": _nothing,
        "adagrad_update": _adagrad_update,
        "destroy_adagrad": _nothing,
    }


class CPULionBuilder(PlainTorch):
    """Lion on the host."""

    NAME = "cpu_lion"
    BUILD_VAR = "DS_BUILD_CPU_LION"
    FUNCTIONS: ClassVar[dict[str, Any]] = {
        "create_lion": _nothing,
        "lion_update": _lion_update,
        "destroy_lion": _nothing,
    }
