# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Optimizer ops: early rounding, forgotten decay, a device left current."""

from typing import Any

import torch
from accel_good.accelerator import GOOD_Accelerator
from accel_good.op_builder.others import UtilsBuilder
from accel_good.runtime import TheRuntime

from broken import breaks
from broken.ops import register_calls, replaces, with_builder

_FORM = "op_steps.every_form_is_stepped"
_NOTHING = "op_steps.nothing_comes_of_nothing"


# --- what the checks of precision and of an op's names notice: early rounding, functions nobody wrote


@replaces(
    "FusedAdamBuilder",
    "multi_tensor_adam",
    *(f"{_FORM}[{kind} of every size-FusedAdamBuilder]" for kind in ("bf16", "fp16")),
)
def DecayIsRounded(op: Any, chunk: int, flag: Any, lists: Any, *arguments: Any) -> None:
    *middle, decoupled, correction, decay = arguments
    if not decoupled:
        grads = [grad + decay * param.detach() for grad, param in zip(*lists[:2], strict=True)]
        lists, decay = [grads, *lists[1:]], 0.0
    op.multi_tensor_adam(chunk, flag, lists, *middle, decoupled, correction, decay)


@replaces(
    "InferenceBuilder",
    "softmax_context_fp32",
    "op_attention.positions_are_exact_in_long_prompts op_inference_forms.given_positions_rotate",
)
def AnglesSlip(op: Any, rows: torch.Tensor, *arguments: Any) -> Any:
    theta = 1.5 if rows.shape[1] > 2048 else 1.0
    return op.softmax_context_fp32(rows, *arguments[:-2], arguments[-2] * theta, arguments[-1])


register_calls(
    "FusedLambBuilder",
    "EveryFunctionExists",
    "op_loading.unknown_functions_are_missing",
    no_such_function=lambda op: None,
)


@replaces(
    "InferenceBuilder",
    "softmax_context_fp32",
    "op_attention.tokens_go_on_from_one_token op_inference_forms.given_positions_rotate",
)
def OneTokenIsNoPrompt(op: Any, rows: torch.Tensor, *arguments: Any) -> Any:
    *others, prompt = arguments
    return op.softmax_context_fp32(rows, *others, prompt and rows.shape[1] > 1)


@replaces(
    "InferenceCoreBuilder",
    "gated_activation",
    *(f"op_norm_extremes.activations_round_once[{t}]" for t in ("fp16", "bf16")),
)
def GateIsRounded(op: Any, out: torch.Tensor, x: torch.Tensor, bias: torch.Tensor | None, kind: int) -> None:
    x = x if bias is None else x + bias
    gate, value = (torch.empty_like(out) for _ in range(2))
    ones = torch.stack([x[..., 0::2], torch.ones_like(x[..., 0::2])], -1).flatten(-2)
    op.gated_activation(gate, ones, None, kind)
    value.copy_(x[..., 1::2])
    out.copy_(gate * value)


# --- what the checks of settings and of zeros notice: what an op leaves behind, and what it takes for nothing


@replaces("CPULionBuilder", "lion_update", "op_devices.op_leaves_settings[CPULionBuilder]")
def LionSetsThreads(op: Any, *arguments: Any) -> Any:
    torch.set_num_threads(torch.get_num_threads() % 2 + 1)
    return op.lion_update(*arguments)


@replaces(
    "CPUAdagradBuilder", "adagrad_update", *(f"{_NOTHING}[{t}-CPUAdagradBuilder]" for t in ("fp32", "bf16"))
)
def SumsHaveALeastNumber(op: Any, *arguments: Any) -> Any:
    result = op.adagrad_update(*arguments)
    arguments[-1].clamp_(min=1e-30)
    return result


def _copies(tensors: Any) -> Any:
    if isinstance(tensors, torch.Tensor):
        return tensors.flatten().clone().view(torch.uint8)
    return [_copies(tensor) for tensor in tensors]


breaks("op_host.tensors_are_bytes", name="BytesAreCopies")(
    with_builder("UtilsBuilder", FUNCTIONS={**UtilsBuilder.FUNCTIONS, "cast_to_byte_tensor": _copies})
)


@breaks("graphs.work_in_a_stream_is_no_capture")
class ChosenStreamsCapture(GOOD_Accelerator):
    def is_current_stream_capturing(self) -> bool:
        streams = TheRuntime.now.streams
        return super().is_current_stream_capturing() or streams.current != streams.default


# --- what the checks of ops and devices notice: another device or stream left current, one device alone computed on


@replaces("FusedLambBuilder", "lamb", "op_devices.op_leaves_device_and_streams[FusedLambBuilder]")
def LambLeavesAnotherStream(op: Any, *arguments: Any) -> Any:
    streams = TheRuntime.now.streams
    streams.current[1] = streams.default[1]
    return op.lamb(*arguments)


@replaces(
    "FusedLionBuilder", "multi_tensor_lion", "op_devices.op_computes_where_its_tensors_are[FusedLionBuilder]"
)
def LionStepsOnDevice0(op: Any, *arguments: Any) -> None:
    if TheRuntime.now.index == 0:
        op.multi_tensor_lion(*arguments)
