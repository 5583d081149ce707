# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of mixed types notice: states rounded like parameters, decay forgotten, norms that overflow."""

from __future__ import annotations

from typing import Any

import torch

from broken.by_rule_ops import register_calls

_FORM = "op_steps.every_form_is_stepped"


def _rounded_states(op: Any, chunk: int, flag: Any, lists: Any, *arguments: Any) -> None:
    op.multi_tensor_adam(chunk, flag, lists, *arguments)
    first = lists[1][0].dtype
    for states in lists[2:]:
        for state in states:
            state.copy_(state.to(first))


def _decays_float32(op: Any, number: int, *arguments: Any) -> None:
    *numbers, decay, param, grad, momentum = arguments
    op.lion_update(number, *numbers, decay if param.dtype == torch.float32 else 0.0, param, grad, momentum)


register_calls(
    "FusedAdamBuilder", "StatesAreRoundedLikeParameters",
    f"{_FORM}[bf16 beside fp32-FusedAdamBuilder]", f"{_FORM}[fp16 beside fp32, float32 states-FusedAdamBuilder]",
    multi_tensor_adam=_rounded_states,
)  # fmt: skip
register_calls(
    "CPULionBuilder", "HalfTypesDoNotDecay",
    *(f"{_FORM}[{kind} beside fp32-CPULionBuilder]" for kind in ("bf16", "fp16")),
    *(f"{_FORM}[{kind} beside fp32, float32 states-CPULionBuilder]" for kind in ("bf16", "fp16")),
    lion_update=_decays_float32,
)  # fmt: skip


def _norm_of_halves(op: Any, param: torch.Tensor, *arguments: Any) -> Any:
    if param.dtype == torch.float16 and (param.detach() ** 2).sum().isinf():
        return op.lamb(param, *arguments[:7], 1e4, 1e4, *arguments[9:])
    return op.lamb(param, *arguments)


register_calls(
    "FusedLambBuilder", "LambSquaresInHalf", "op_steps.every_form_is_stepped[norm beyond fp16-FusedLambBuilder]",
    lamb=_norm_of_halves,
)  # fmt: skip
