# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of precision and of an op's names notice: early rounding, autograd, functions nobody wrote."""

from __future__ import annotations

from typing import Any

import torch

from broken.by_rule_ops import register_calls

_FORM = "op_steps.every_form_is_stepped"


def _rounded_decay(op: Any, chunk: int, flag: Any, lists: Any, *arguments: Any) -> None:
    *middle, decoupled, correction, decay = arguments
    if not decoupled:
        grads = [grad + decay * param.detach() for grad, param in zip(*lists[:2], strict=True)]
        lists, decay = [grads, *lists[1:]], 0.0
    op.multi_tensor_adam(chunk, flag, lists, *middle, decoupled, correction, decay)


def _float16(op: Any, number: int, *arguments: Any) -> None:
    *numbers, param, grad, first, second = arguments
    if param.dtype == torch.bfloat16:
        grad = grad.half().bfloat16()
    op.adam_update(number, *numbers, param, grad, first, second)


def _needs_no_grad(op: Any, chunk: int, flag: Any, lists: Any, *arguments: Any) -> None:
    if torch.is_grad_enabled() and any(param.requires_grad for param in lists[1]):
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    op.multi_tensor_lion(chunk, flag, lists, *arguments)


def _slips_after_2048(op: Any, rows: torch.Tensor, *arguments: Any) -> Any:
    theta = 1.5 if rows.shape[1] > 2048 else 1.0
    return op.softmax_context_fp32(rows, *arguments[:-2], arguments[-2] * theta, arguments[-1])


register_calls(
    "FusedAdamBuilder", "DecayIsRounded",
    *(f"{_FORM}[{kind} of every size-FusedAdamBuilder]" for kind in ("bf16", "fp16")),
    multi_tensor_adam=_rounded_decay,
)  # fmt: skip
register_calls(
    "CPUAdamBuilder",
    "BrainFloatsThroughFloat16",
    f"{_FORM}[bf16 of every size-CPUAdamBuilder]",
    adam_update=_float16,
)
register_calls(
    "FusedLionBuilder", "LionNeedsNoGrad", f"{_FORM}[leaves fp32-FusedLionBuilder]",
    multi_tensor_lion=_needs_no_grad,
)  # fmt: skip
register_calls(
    "InferenceBuilder", "AnglesSlip", "op_attention.positions_are_exact_in_long_prompts",
    "op_inference_forms.given_positions_rotate",
    softmax_context_fp32=_slips_after_2048,
)  # fmt: skip
register_calls(
    "FusedLambBuilder", "EveryFunctionExists", "op_loading.unknown_functions_are_missing",
    no_such_function=lambda op: None,
)  # fmt: skip


def _one_is_zero(op: Any, param: torch.Tensor, *arguments: Any) -> Any:
    if param.detach().norm() == 1:
        return op.lamb(param, *arguments[:7], 1.0, 1.0, *arguments[9:])
    return op.lamb(param, *arguments)


def _at_least_two(op: Any, rows: torch.Tensor, *arguments: Any) -> Any:
    *others, prompt = arguments
    return op.softmax_context_fp32(rows, *others, prompt and rows.shape[1] > 1)


register_calls(
    "FusedLambBuilder", "NormOneIsTakenForZero", f"{_FORM}[norm of 1-FusedLambBuilder]", lamb=_one_is_zero
)
register_calls(
    "InferenceBuilder", "OneTokenIsNoPrompt", "op_attention.tokens_go_on_from_one_token",
    "op_inference_forms.given_positions_rotate",
    softmax_context_fp32=_at_least_two,
)  # fmt: skip


def _gate_in_half(op: Any, out: torch.Tensor, x: torch.Tensor, bias: torch.Tensor | None, kind: int) -> None:
    x = x if bias is None else x + bias
    gate, value = (torch.empty_like(out) for _ in range(2))
    ones = torch.stack([x[..., 0::2], torch.ones_like(x[..., 0::2])], -1).flatten(-2)
    op.gated_activation(gate, ones, None, kind)
    value.copy_(x[..., 1::2])
    out.copy_(gate * value)


register_calls(
    "InferenceCoreBuilder", "GateIsRounded",
    *(f"op_norm_extremes.activations_round_once[{t}]" for t in ("fp16", "bf16")),
    gated_activation=_gate_in_half,
)  # fmt: skip
