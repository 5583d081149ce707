# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of ops in plain torch notice: a forgotten bias, another order, truncation, bits the other way."""

from __future__ import annotations

from typing import Any

import torch

from broken.by_rule_ops import register_calls


def _second_bias_is_dropped(op: Any, q: Any, k: Any, v: Any, bias1: Any, bias2: Any, *rest: Any) -> None:
    op.attention(q, k, v, bias1, bias2[:0], *rest)


def _gradients_are_not_scaled(op: Any, *arguments: Any) -> None:
    op.attention_bwd(*arguments)
    arguments[9].mul_(arguments[1].shape[-1] ** 0.5)


def _first_tokens(op: Any, rows: torch.Tensor, index: torch.Tensor, batch_first: bool) -> Any:
    first = torch.arange(index.shape[1], dtype=index.dtype, device=index.device)
    return op.token_gather(rows, first.expand_as(index), batch_first)


def _copied(op: Any, rows: torch.Tensor, *rest: Any) -> Any:
    return op.token_scatter_(rows.clone(), *rest)


def _truncated(op: Any, out: Any, val: torch.Tensor, *rest: Any) -> Any:
    step = val.abs().amax() / 480
    return op.quantize(out, val - val.sign() * step * 16, *rest)


def _first_parts(op: Any, val: torch.Tensor, data: Any, indexes: torch.Tensor, *rest: Any) -> Any:
    return op.selective_dequantize(val, data, torch.zeros_like(indexes), *rest)


_EVOFORMER = "op_evoformer.every_form_is_right"
_TOKENS = "op_plain.tokens_are_kept_and_put_back"
_EIGHT = "op_fp_quantizer.numbers_come_back"
_PARTS = "op_fp_quantizer.chosen_parts_have_any_number_of_groups"
_SIGNS = "op_plain.signs_are_bits"
_CHANNELS = "op_plain.biases_are_those_of_channels"

register_calls("EvoformerAttnBuilder", "SecondBiasIsDropped", _EVOFORMER, attention=_second_bias_is_dropped)
register_calls(
    "EvoformerAttnBuilder", "GradientsAreNotScaled", _EVOFORMER, attention_bwd=_gradients_are_not_scaled
)
register_calls("RandomLTDBuilder", "FirstTokensAreKept", _TOKENS, token_gather=_first_tokens)
register_calls("RandomLTDBuilder", "TokensArePutIntoACopy", _TOKENS, token_scatter_=_copied)
register_calls("FPQuantizerBuilder", "ExponentsAreTruncated", _EIGHT, quantize=_truncated)
register_calls("FPQuantizerBuilder", "FirstPartsAreChosen", _PARTS, selective_dequantize=_first_parts)
register_calls(
    "PackbitsBuilder",
    "BitsAreTheOtherWayRound",
    _SIGNS,
    packbits=lambda op, *a: op.packbits(*a).bitwise_not(),
)
register_calls(
    "SpatialInferenceBuilder", "OtherBiasIsDropped", _CHANNELS,
    nhwc_bias_add_bias_add=lambda op, x, bias, other, other_bias: op.nhwc_bias_add_add(x, bias, other),
)  # fmt: skip


def _layers_are_cast(op: Any, rows: torch.Tensor, layer: torch.Tensor, *rest: Any) -> Any:
    return op.token_scatter_(rows, layer.to(rows.dtype), *rest)


def _other_is_broadcast(op: Any, x: torch.Tensor, bias: torch.Tensor, other: torch.Tensor) -> Any:
    return op.nhwc_bias_add(x, bias).add_(other)


_REFUSED = "op_refusals.arguments_that_do_not_fit_are_refused"
register_calls(
    "RandomLTDBuilder", "LayersAreCast", f"{_REFUSED}[RandomLTDBuilder-token_scatter_]",
    token_scatter_=_layers_are_cast,
)  # fmt: skip
register_calls(
    "SpatialInferenceBuilder", "OtherIsBroadcast",
    f"{_REFUSED}[SpatialInferenceBuilder-nhwc_bias_add_add]",
    "op_plain.biases_are_those_of_channels", nhwc_bias_add_add=_other_is_broadcast,
)  # fmt: skip
