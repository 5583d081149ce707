# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam, Adagrad and Lion on the host, as DeepSpeed's optimizers call them, and what they offer in addition.

Upstream's functions get an optimizer's ID and one tensor each. In addition, `HostStep` offers a step with unscaling,
clipping and copy-out fused: `accel_zero` shortens ZeRO-Offload's path of a gradient through host memory with it
(docs/offload.md). An op without them works as with stock DeepSpeed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from accel_core.errors import InvalidOpArgument
from accel_core.op_builder import OpFunctions
from accel_ops.host import library
from accel_ops.host.library import host
from accel_ops.op import Op
from accel_ops.optimizers import cpu_steps, zenflow
from accel_ops.optimizers.cpu_steps import copy_gradient
from accel_ops.optimizers.fused import ADAM, LION, AdamStep, Lists, as_multi_tensor_adam

#: Elements that are updated before their copy is reported: 32 MiB of bfloat16, enough to hide the start of a transfer.
PIECE = 1 << 24


class FusedOp:
    """The op that `HostStep.fused` returns. Only its update is its own; `updates` counts the calls."""

    def __init__(
        self,
        op: HostStep,
        grad_factor: float,
        copy: torch.Tensor | None,
        copied: Callable[[int, int], None] | None,
    ) -> None:
        self._op, self._grad_factor, self._copy, self._copied = op, grad_factor, copy, copied
        self.updates = 0

    def __getattr__(self, name: str) -> Any:
        return self._fused if name == self._op.UPDATE else getattr(self._op, name)

    def _fused(self, *arguments: Any) -> int:
        self.updates += 1
        update = getattr(self._op, self._op.UPDATE)
        scalars, tensors = arguments[: self._op.SCALARS], arguments[self._op.SCALARS :]
        size = tensors[0].numel()
        piece = PIECE if self._copied else max(size, 1)
        for begin in range(0, size, piece):
            end = min(begin + piece, size)
            whole = end - begin == size
            parts = tensors if whole else [tensor.view(-1)[begin:end] for tensor in tensors]
            copy = self._copy if whole or self._copy is None else self._copy.view(-1)[begin:end]
            update(*scalars, *parts, grad_factor=self._grad_factor, copy=copy)
            if self._copied:
                self._copied(begin, end)
        return 0


class HostStep:
    """Base class of the optimizer ops on the host. Results do not depend on the number of threads.

    UPDATE: name of the op's update function, with `grad_factor` and `copy` as keywords. SCALARS: the number of its
    arguments ahead of the tensors.
    """

    UPDATE: str
    SCALARS: int

    copy_gradient = staticmethod(copy_gradient)

    @staticmethod
    def sum_of_squares(tensor: torch.Tensor) -> float:
        """Return the sum over all elements, in float64; infinite or NaN where an element is."""
        return cpu_steps.sum_of_squares([tensor])

    def fused(
        self,
        *,
        grad_factor: float = 1.0,
        copy: torch.Tensor | None = None,
        copied: Callable[[int, int], None] | None = None,
    ) -> FusedOp:
        """Return the op with updates that multiply the gradients first, and write the parameters to `copy` too.

        The gradients stay as they are. copied: called with the bounds of each piece of the copy once it is complete.
        """
        return FusedOp(self, grad_factor, copy, copied)


class OptimizerRegistry:
    """DeepSpeed's optimizers by their ID. An ID that is created again has the new option, as upstream."""

    def __init__(self, name: str) -> None:
        self._name = name
        #: Whether Adam's decay is decoupled, by ID. Replaced items are seen by the library, which reads it itself.
        self.options: dict[int, bool] = {}
        self._lock = threading.Lock()

    def create(self, optimizer_id: int, decoupled: bool = True) -> int:
        """Store the option; returns 0."""
        with self._lock:
            self.options[optimizer_id] = decoupled
        return 0

    def destroy(self, optimizer_id: int) -> int:
        """Delete the option; returns 0. Do nothing for an unknown ID, so that a destructor never raises."""
        with self._lock:
            self.options.pop(optimizer_id, None)
        return 0

    def __getitem__(self, optimizer_id: int) -> bool:
        try:
            return self.options[optimizer_id]
        except KeyError:
            known = ", ".join(map(str, sorted(self.options))) or "none"
            raise InvalidOpArgument(
                f"{self._name} {optimizer_id} was never created, or was destroyed; there are: {known}",
                do=f"call create_{self._name}({optimizer_id}, …) first",
            ) from None


#: Upstream passes all options of Adam at every step but one.
_adams = OptimizerRegistry("adam")
_zenflow = zenflow.ZenFlow(_adams)


def create_adam(
    optimizer_id: int,
    alpha: float = 1e-3,
    betta1: float = 0.9,
    betta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    adamw_mode: bool = True,
    should_log: bool = False,
) -> int:
    """Register an optimizer; returns 0."""
    return _adams.create(optimizer_id, bool(adamw_mode))


def adam_update(
    optimizer_id: int,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    bias_correction: bool,
    params: torch.Tensor,
    grads: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    *,
    rollback: bool = False,
    grad_factor: float = 1.0,
    copy: torch.Tensor | None = None,
) -> int:
    """Take one step in place; returns 0. Raises InvalidOpArgument and what `cpu_steps.adam` raises.

    grad_factor, copy: see `HostStep.fused`; upstream has neither.
    """
    decoupled = _adams[optimizer_id]
    cpu_steps.adam(
        [params], [grads], [exp_avg], [exp_avg_sq], step=step, lr=lr, beta1=beta1, beta2=beta2, eps=epsilon,
        weight_decay=weight_decay, decoupled=decoupled, bias_correction=bool(bias_correction), rollback=rollback,
        grad_factor=grad_factor, copies=None if copy is None else [copy],
    )  # fmt: skip
    return 0


def adam_rollback(*arguments: Any) -> int:
    """Undo the step that was taken with the same arguments, up to rounding."""
    return adam_update(*arguments, rollback=True)


def adam_step(lists: Lists, adam: AdamStep) -> None:
    """Take one step in place on [gradients, parameters, first moments, second moments] in host memory."""
    grads, params, exp_avgs, exp_avg_sqs = lists
    cpu_steps.adam(
        params, grads, exp_avgs, exp_avg_sqs, step=adam.step, lr=adam.lr, beta1=adam.beta1, beta2=adam.beta2,
        eps=adam.epsilon, weight_decay=adam.weight_decay, decoupled=bool(adam.adam_w_mode),
        bias_correction=bool(adam.bias_correction),
    )  # fmt: skip


class CPUAdam(HostStep, OpFunctions):
    """Upstream's functions; those of ZenFlow take its overlapped step."""

    OP = "cpu_adam"
    UPDATE, SCALARS = "adam_update", 8
    create_adam = staticmethod(create_adam)
    adam_update: Any = staticmethod(adam_update)
    adam_rollback = staticmethod(adam_rollback)
    destroy_adam = staticmethod(_adams.destroy)

    zenflow_adam_create = staticmethod(_zenflow.create)
    zenflow_adam_register_group = staticmethod(_zenflow.register_group)
    zenflow_adam_run_worker = staticmethod(_zenflow.run_worker)
    zenflow_adam_destroy = staticmethod(_zenflow.destroy)
    zenflow_adam_ctrl_size = staticmethod(zenflow.ctrl_size)
    zenflow_adam_ctrl_init = staticmethod(zenflow.ctrl_init)
    zenflow_adam_ctrl_exit = staticmethod(zenflow.ctrl_exit)
    zenflow_adam_submit = staticmethod(zenflow.submit)
    zenflow_adam_wait = staticmethod(zenflow.wait)

    def __init__(self) -> None:
        self.adam_update = library.load().module.adam_update(_adams.options, adam_update)

    def __reduce__(self) -> tuple[type[CPUAdam], tuple[()]]:
        return CPUAdam, ()  # a builtin function of the library cannot be pickled


CPU_ADAM = Op(
    "cpu_adam", "CPUAdamBuilder", "Adam and AdamW on one tensor, the optimizer of ZeRO-Offload.", CPUAdam
)
CPUAdamBuilder = CPU_ADAM.builder(__name__, host(CPUAdam))


FusedAdamBuilder = ADAM.builder(
    __name__, host(lambda: SimpleNamespace(multi_tensor_adam=as_multi_tensor_adam(adam_step)))
)


_adagrads = OptimizerRegistry("adagrad")


def create_adagrad(
    optimizer_id: int,
    alpha: float = 1e-2,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    should_log: bool = False,
) -> int:
    """Register an optimizer; returns 0."""
    return _adagrads.create(optimizer_id)


def adagrad_update(
    optimizer_id: int,
    step: int,
    lr: float,
    epsilon: float,
    weight_decay: float,
    params: torch.Tensor,
    grads: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    *,
    grad_factor: float = 1.0,
    copy: torch.Tensor | None = None,
) -> int:
    """Take one step in place; returns 0.

    The gradient is not changed. Upstream overwrites it, with values that nothing reads.
    """
    _adagrads[optimizer_id]
    cpu_steps.adagrad(
        [params], [grads], [exp_avg_sq], lr=lr, eps=epsilon, weight_decay=weight_decay, grad_factor=grad_factor,
        copies=None if copy is None else [copy],
    )  # fmt: skip
    return 0


class CPUAdagrad(HostStep):
    """Upstream's functions."""

    UPDATE, SCALARS = "adagrad_update", 5
    create_adagrad = staticmethod(create_adagrad)
    adagrad_update = staticmethod(adagrad_update)
    destroy_adagrad = staticmethod(_adagrads.destroy)


CPU_ADAGRAD = Op("cpu_adagrad", "CPUAdagradBuilder", "Adagrad on one tensor.", CPUAdagrad)
CPUAdagradBuilder = CPU_ADAGRAD.builder(__name__, host(CPUAdagrad))


_lions = OptimizerRegistry("lion")


def create_lion(
    optimizer_id: int,
    alpha: float = 1e-3,
    betta1: float = 0.9,
    betta2: float = 0.999,
    weight_decay: float = 0.0,
    should_log: bool = False,
) -> int:
    """Register an optimizer; returns 0."""
    return _lions.create(optimizer_id)


def lion_update(
    optimizer_id: int,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    params: torch.Tensor,
    grads: torch.Tensor,
    exp_avg: torch.Tensor,
    *,
    grad_factor: float = 1.0,
    copy: torch.Tensor | None = None,
) -> int:
    """Take one step in place; returns 0."""
    _lions[optimizer_id]
    cpu_steps.lion(
        [params], [grads], [exp_avg], lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay,
        grad_factor=grad_factor, copies=None if copy is None else [copy],
    )  # fmt: skip
    return 0


def multi_tensor_lion(
    chunk_size: int,
    noop_flag_buffer: torch.Tensor,
    tensor_lists: list[list[torch.Tensor]],
    lr: float,
    beta1: float,
    beta2: float,
    step: int,
    weight_decay: float,
) -> None:
    """Take one step on [gradients, parameters, momenta], as deepspeed.ops.lion.FusedLion calls it.

    A parameter whose gradient and momentum are 0 grows by lr, as in DeepSpeed's kernel for CUDA.
    """
    grads, params, exp_avgs = tensor_lists
    cpu_steps.lion(
        params, grads, exp_avgs, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, at_zero=-1.0
    )


class CPULion(HostStep):
    """Upstream's functions."""

    UPDATE, SCALARS = "lion_update", 6
    create_lion = staticmethod(create_lion)
    lion_update = staticmethod(lion_update)
    destroy_lion = staticmethod(_lions.destroy)


CPU_LION = Op("cpu_lion", "CPULionBuilder", "Lion on one tensor.", CPULion)
CPULionBuilder = CPU_LION.builder(__name__, host(CPULion))


FusedLionBuilder = LION.builder(__name__, host(lambda: SimpleNamespace(multi_tensor_lion=multi_tensor_lion)))
