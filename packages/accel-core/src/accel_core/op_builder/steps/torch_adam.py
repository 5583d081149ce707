# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam and AdamW with torch's own fused operators, `torch._fused_adam_` and `torch._fused_adamw_`.

They are private, and each device implements them or not, for some float types. So `trial` takes a step of one element.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from accel_core.op_builder.steps import adam as plain
from accel_core.op_builder.steps.adam import AdamStep, Lists, Step, as_multi_tensor_adam
from accel_core.op_builder.steps.precision import Tensors

#: The arguments without a default that this module passes.
_ARGUMENTS = (
    "self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps",
    "lr", "beta1", "beta2", "weight_decay", "eps", "amsgrad", "maximize",
)  # fmt: skip
#: The first must work, or none is used.
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Trial(NamedTuple):
    """What a step of one element has shown.

    dtypes: types that the operators accept and compute right.
    lack:   why there are none, or fewer than three, or none without bias correction.
    uncorrected: whether they are right without bias correction, too.
    """

    dtypes: tuple[torch.dtype, ...]
    lack: str
    uncorrected: bool = True


def op_name(adam_w_mode: int) -> str:
    """Return the name of the operator in `torch`."""
    return "_fused_adamw_" if adam_w_mode else "_fused_adam_"


@cache
def trial(device_type: str) -> Trial:
    """Take a step of one element with each operator in each type on the current device; once a process."""
    dtypes: list[torch.dtype] = []
    lacks: list[str] = []
    uncorrected = True
    for dtype in _DTYPES:
        lack = _lack(torch.device(device_type), dtype, 1)
        if not lack:
            dtypes.append(dtype)
            lack = _lack(torch.device(device_type), dtype, 0)
            uncorrected = uncorrected and not lack
        lacks += filter(None, [lack])
    lack = "; ".join(dict.fromkeys(lacks))
    return Trial(tuple(dtypes) if _DTYPES[0] in dtypes else (), lack, uncorrected)


def multi_tensor_adam(
    dtypes: Sequence[torch.dtype], device_type: str, rest: Step = plain.step, uncorrected: bool = True
) -> Callable[..., None]:
    """Return a `multi_tensor_adam` with torch's operators for tensors of these types, and with `rest` for others.

    uncorrected: use them without bias correction, too.

    They want gradient, parameter and moments of one type and device. The layouts may not differ, which is
    only certain of contiguous tensors.
    """

    def step(lists: Lists, adam: AdamStep) -> None:
        if not (adam.bias_correction or uncorrected):
            rest(lists, adam)
            return
        groups: dict[tuple[torch.device, torch.dtype] | None, list[Tensors]] = defaultdict(
            lambda: [[], [], [], []]
        )
        for tensors in zip(*lists, strict=True):
            first = tensors[0]
            fits = first.dtype in dtypes and first.device.type == device_type and _alike(tensors)
            group = groups[(first.device, first.dtype) if fits else None]
            for column, tensor in zip(group, tensors, strict=True):
                column.append(tensor)
        for kind, group in groups.items():
            (rest if kind is None else fused_step)(group, adam)

    return as_multi_tensor_adam(step)


def fused_step(lists: Lists, adam: AdamStep) -> None:
    """Do one step in place on tensors of one type and device with torch's operator."""
    grads, params, exp_avgs, exp_avg_sqs = ([tensor.detach() for tensor in tensors] for tensors in lists)
    # The operator corrects by 1 - beta ** step, and reads the step on the device. An infinite one gives no correction.
    number = float(adam.step) if adam.bias_correction else math.inf
    step = torch.full((), number, dtype=torch.float32, device=params[0].device)
    getattr(torch, op_name(adam.adam_w_mode))(
        params, grads, exp_avgs, exp_avg_sqs, [], [step] * len(params),
        lr=float(adam.lr), beta1=adam.beta1, beta2=adam.beta2, weight_decay=adam.weight_decay, eps=adam.epsilon,
        amsgrad=False, maximize=False,
    )  # fmt: skip


def _alike(tensors: Sequence[torch.Tensor]) -> bool:
    first = tensors[0]
    return all(
        tensor.dtype == first.dtype and tensor.device == first.device and tensor.is_contiguous()
        for tensor in tensors
    )


def _lack(device: torch.device, dtype: torch.dtype, corrected: int) -> str:
    """Return why the operators cannot be used for this type, with or without bias correction; empty if they can."""
    for adam_w_mode in (1, 0):
        name = op_name(adam_w_mode)
        try:
            lack = _schema_lack(name) or _wrong_step(device, dtype, adam_w_mode, corrected)
        except Exception as error:
            # The first line: torch lists all its dispatch keys below.
            told = str(error).strip().partition("\n")[0][:200]
            lack = f"raises {type(error).__name__}: {told}"
        if lack:
            return f"torch.{name} {lack}"
    return ""


def _schema_lack(name: str) -> str:
    op: Any = getattr(torch.ops.aten, name, None)
    if op is None or not hasattr(torch, name):
        return f"is missing in torch {torch.__version__}"
    wanted = tuple(
        argument.name for argument in op.default._schema.arguments if not argument.has_default_value()
    )
    return "" if wanted == _ARGUMENTS else f"has other arguments in torch {torch.__version__}"


def _wrong_step(device: torch.device, dtype: torch.dtype, adam_w_mode: int, corrected: int) -> str:
    """Return what is wrong with a step of one element; empty if nothing is."""
    # The conversion is for `deepspeed.zero.Init`, which replaces torch.full and ignores its dtype.
    lists = [[torch.full((1,), value, device=device).to(dtype)] for value in (0.5, 1.0, 0.25, 0.5)]
    wanted = [[tensor.double() for tensor in group] for group in _on_host(lists)]
    adam = AdamStep(torch.empty(0), 1.0, 0.75, 0.875, 1e-3, 3, adam_w_mode, corrected, 0.25)
    fused_step(lists, adam)
    plain.step(wanted, adam)
    for ours, theirs in zip(_on_host(lists), wanted, strict=True):
        error = abs(float(ours[0].double()) - float(theirs[0]))
        if not error <= 2 * torch.finfo(dtype).eps:
            kind = "with" if corrected else "without"
            return f"computes wrongly in {dtype} {kind} bias correction on {device.type}"
    return ""


def _on_host(lists: Lists) -> list[Tensors]:
    return [[tensor.cpu() for tensor in tensors] for tensors in lists]
