# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Common parts of the replaced methods of ZeRO optimizers: one pass over a gradient, its norm, its scale factor.

docs/offload.md#the-same-bits says why the clip factor has the same bits with and without these methods.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from deepspeed import comm as dist
from deepspeed.comm import comm
from torch.optim.optimizer import _global_optimizer_pre_hooks

from accel_core.op_builder import OpBuilder
from accel_ops.optimizers.host import HostStep
from accel_zero import method_patch

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
#: Attribute of DeepSpeed's optimizer that has its `HostPath`.
_ATTRIBUTE = "_accel_host_path"
#: Unit roundoff of float64.
_UNIT = 2.0**-53
#: DeepSpeed's optimizers that step through a host op, and the attribute that holds it.
_OP_ATTRIBUTES = {
    "DeepSpeedCPUAdam": "ds_opt_adam",
    "DeepSpeedCPUAdagrad": "ds_opt_adagrad",
    "DeepSpeedCPULion": "ds_opt_lion",
}
#: The classes whose methods are replaced; what derives from them runs stock methods.
_CLASSES = {
    "deepspeed.runtime.zero.stage_1_and_2:DeepSpeedZeroOptimizer",
    "deepspeed.runtime.zero.stage3:DeepSpeedZeroOptimizer_Stage3",
}
#: Fingerprints of the `step` of those optimizers, in all supported releases.
_STEPS = {"5087412e98e777fd", "ecb7b8355bcfad4a", "e46ffe48294c9cf9"}


@dataclass
class HostPath:
    """State of the replaced methods between calls, for one ZeRO optimizer.

    op:       the host op; None where there is none, and stock methods run.
    norms:    the norms that we computed since the last step, by parameter: DeepSpeed's entry, number of elements.
    finite:   by the parameter whose gradient has just been copied, whether all of it is finite.
    add:      by the parameter whose gradient is to be accumulated in the pass that copies it.
    factor:   by group, the factor that the step is to apply to the gradients.
    unscaled: by group, the factor that a step has applied without writing the gradients.
    written:  by group, the parameters whose gradients were written since that step.
    copied:   ZeRO 3: sub-groups whose 16-bit parameters the step has written.
    buffers:  ZeRO 1 and 2: buffers of the copy-out that are replaced until the end of the step, by group.
    """

    op: HostStep | None
    norms: dict[int, tuple[torch.Tensor, int]] = field(default_factory=dict)
    finite: dict[int, bool] = field(default_factory=dict)
    add: dict[int, bool] = field(default_factory=dict)
    factor: dict[int, float] = field(default_factory=dict)
    unscaled: dict[int, float] = field(default_factory=dict)
    written: dict[int, set[int]] = field(default_factory=dict)
    copied: set[int] = field(default_factory=set)
    buffers: dict[int, torch.Tensor] = field(default_factory=dict)


def path_of(optimizer: Any) -> HostPath:
    """Return the `HostPath` of a ZeRO optimizer."""
    path: HostPath | None = vars(optimizer).get(_ATTRIBUTE)
    if path is None:
        path = HostPath(_host_op(optimizer))
        setattr(optimizer, _ATTRIBUTE, path)
    return path


def _host_op(optimizer: Any) -> HostStep | None:
    """Return the op of the inner optimizer, else that of the accelerator's CPUAdamBuilder."""
    if f"{type(optimizer).__module__}:{type(optimizer).__name__}" not in _CLASSES or optimizer.zenflow:
        return None  # SuperOffload and ZenFlow derive from these classes and use the scaled gradients
    from deepspeed.accelerator import get_accelerator

    inner = optimizer.optimizer
    op = getattr(inner, _OP_ATTRIBUTES.get(type(inner).__name__, ""), None)
    builder = get_accelerator().create_op_builder("CPUAdamBuilder")
    if not isinstance(op, HostStep) and isinstance(builder, OpBuilder) and builder.is_compatible():
        op = builder.load()
    return op if isinstance(op, HostStep) else None


def orders_itself() -> bool:
    """Return whether host and accelerator need no events between them, and norms are computed in double."""
    from deepspeed.accelerator import get_accelerator
    from deepspeed.runtime.zero import utils

    norm_dtype = getattr(utils, "get_norm_dtype", lambda: torch.double)()  # 0.18 always uses double
    return norm_dtype == torch.double and bool(get_accelerator().resolves_data_dependency())


def copyable(grad: torch.Tensor | None, destination: torch.Tensor) -> bool:
    """Return whether the pass of a `HostStep` can copy a gradient, and a norm of the copy is one of the gradient."""
    return (
        grad is not None
        and orders_itself()
        and grad.is_cpu
        and grad.dtype in FLOATS
        and grad.layout is torch.strided
        and grad.is_contiguous()
        and destination.is_cpu
        and destination.dtype in (torch.float32, grad.dtype)
        and destination.is_contiguous()
    )


def exact_norms(
    path: HostPath, entries: Iterable[tuple[int, torch.Tensor]], stock: Callable[[int], torch.Tensor]
) -> dict[int, torch.Tensor]:
    """Return the norms that have to be replaced for the total to have the bits of DeepSpeed's.

    entries: DeepSpeed's norms, of which DeepSpeed will add the squares, in that order, by parameter.
    stock:   computes the norm of a parameter's gradient DeepSpeed's way.
    """
    norms = dict(entries)
    ours = {
        param: path.norms[param][1]
        for param, norm in norms.items()
        if param in path.norms and path.norms[param][0] is norm
    }
    replaced: dict[int, torch.Tensor] = {}
    while ours:
        total = sum(norm.item() ** 2 for norm in norms.values())
        slack = {param: _slack(norms[param].item() ** 2, size) for param, size in ours.items()}
        reach = sum(slack.values()) + 2 * (len(norms) + 8) * _UNIT * total
        if not math.isfinite(total) or _to_float(total - reach) == _to_float(total + reach):
            break
        param = max(slack, key=slack.__getitem__)
        norms[param] = replaced[param] = stock(param)
        del ours[param]
    return replaced


def _slack(square: float, size: int) -> float:
    # The squares of 32-bit floats are exact in double. Adding n of them in any order loses at most n - 1 units of the
    # sum, ours about n / 4096 + 260; a square root and a square are some more.
    return 2 * (size + size / 4096 + 300) * _UNIT * square


def _to_float(value: float) -> float:
    return ctypes.c_float(value).value


def factor_of(unscale: Callable[[torch.Tensor], object]) -> float:
    """Return the factor by which DeepSpeed's method multiplies float32 gradients, from what it makes of a one."""
    probe = torch.ones(1)
    unscale(probe)
    return probe.item()


def rescale_stale_grads(
    path: HostPath, group: int, stale: Callable[[set[int]], Iterable[torch.Tensor]]
) -> None:
    """Scale the gradients of a group that no backward has written since a step applied its factor without writing it.

    DeepSpeed writes the scaled gradients, and steps with them again where a parameter gets no new one.
    stale: returns the gradients of all parameters of the group but the given ones.
    """
    factor = path.unscaled.pop(group, 1.0)
    written = path.written.pop(group, set())
    if factor != 1.0:
        for grad in stale(written):
            grad.mul_(factor)


def fusable(inner: Any, grad: torch.Tensor | None, path: HostPath) -> str:
    """Return the attribute with the op through which the inner optimizer steps; empty if its step cannot be fused."""
    name = _OP_ATTRIBUTES.get(type(inner).__name__, "")
    if (
        path.op is None
        or grad is None
        or grad.dtype != torch.float32
        or not grad.is_cpu
        or not name
        or not _known_step(cast(Hashable, type(inner)))
        or not isinstance(getattr(inner, name, None), HostStep)
        # Hooks see the gradients.
        or inner._optimizer_step_pre_hooks
        or _global_optimizer_pre_hooks
    ):
        return ""
    return name


@functools.cache
def _known_step(optimizer: Any) -> bool:
    """Return whether the optimizer's step does nothing with the gradients but to pass them to the op."""
    step: Any = inspect.unwrap(vars(optimizer).get("step", _known_step))
    try:
        return method_patch.fingerprint(inspect.getsource(step)) in _STEPS
    except (OSError, TypeError):
        return False


def step_fused(
    inner: Any,
    name: str,
    step: Callable[[], None],
    factor: float,
    copy: torch.Tensor | None,
    copied: Callable[[int, int], None] | None = None,
) -> bool:
    """Take DeepSpeed's step with the factor and the copy in the kernel; returns whether anything was updated."""
    op = getattr(inner, name)
    fused = op.fused(grad_factor=factor, copy=copy, copied=copied)
    setattr(inner, name, fused)
    try:
        step()
    finally:
        setattr(inner, name, op)
    return bool(fused.updates)


def alone(optimizer: Any, group: Any) -> bool:
    """Return whether the average over the group is what this rank has, and nobody counts what is sent."""
    return (
        dist.get_world_size(group) == 1
        and optimizer.gradient_predivide_factor == 1.0
        and not comm.comms_logger.enabled
    )
