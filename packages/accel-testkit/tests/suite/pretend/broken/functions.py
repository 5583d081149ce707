# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Functions of ops: inference, quantizers, ops in plain torch. Truncation, forgotten biases, strides, refusals."""

import time

import torch

from accel_core.errors import InvalidOpArgument
from broken import breaks
from broken.ops import functions, replaces, with_builder

# --- inference: caches that are shared or never reset, positions, masks, norms that round early

_REFUSED = "op_attention.what_there_is_not_is_refused"
_RIGHT = "ops.samples_are_right[InferenceBuilder-softmax_context-fp32]"

functions(
    ("CacheIsNeverReset", "InferenceBuilder", f"{_RIGHT} {_REFUSED}", "reset_cache", lambda op: None),
    ("BatchIsRepeated", "InferenceBuilder", "ops.samples_are_right[InferenceBuilder-repeat_kv_cache-fp32]",
     "repeat_kv_cache_fp32", lambda op, batch, times: [
         rows.unflatten(0, (batch, times)).transpose(0, 1).flatten(0, 1)
         for rows in op.repeat_kv_cache_fp32(batch, times)]),
    ("WindowIsOneWider", "InferenceBuilder", _RIGHT, "softmax_context_fp32",
     lambda op, *a: op.softmax_context_fp32(*a[:10], a[10] + bool(a[10]), *a[11:])),
    ("NoGroupsAreOne", "InferenceBuilder", _RIGHT,
     "softmax_context_fp32", lambda op, *a: op.softmax_context_fp32(*a[:6], a[6] or 1, *a[7:])),
    ("LayersAreCountedAnew", "InferenceBuilder", _RIGHT,
     "softmax_context_fp32", lambda op, *a: op.softmax_context_fp32(*a[:12], a[12] % 32, *a[13:])),
    ("OneTokenIsNoPrompt", "InferenceBuilder", _RIGHT, "softmax_context_fp32",
     lambda op, rows, *a: op.softmax_context_fp32(rows, *a[:-1], a[-1] and rows.shape[1] > 1)),
    ("AnglesSlip", "InferenceBuilder", _RIGHT,
     "softmax_context_fp32", lambda op, rows, *a: op.softmax_context_fp32(
         rows, *a[:-2], a[-2] * (1.5 if rows.shape[1] > 2048 else 1), a[-1])),
    ("MasksAreInverted", "InferenceBuilder", _RIGHT,
     "softmax_context_fp32", lambda op, rows, mask, *rest: op.softmax_context_fp32(
         rows, ~mask if mask.dtype == torch.bool else mask, *rest)),
    ("PreNormIsForgotten", "InferenceCoreBuilder",
     " ".join(f"ops.samples_are_right[InferenceCoreBuilder-pre_layer_norm-{t}]" for t in ("fp32", "fp16", "bf16")),
     "pre_layer_norm", lambda op, *tensors: None),
    ("SumsAreOfHalf", "InferenceCoreBuilder", "ops.samples_are_right[InferenceCoreBuilder-post_layer_norm-fp16]",
     "post_layer_norm", lambda op, out, x, y, *rest: op.layer_norm(out, x + y, *rest)),
    ("ActivationHidesNaN", "InferenceCoreBuilder", "ops.samples_are_right[InferenceCoreBuilder-bias_activation-fp32]",
     "bias_activation", lambda op, x, *rest: (op.bias_activation(x, *rest), x.nan_to_num_(0.0))),
)  # fmt: skip


@replaces(
    "SpatialInferenceBuilder", "nhwc_bias_add", "ops.captured_call_reads_new_numbers[SpatialInferenceBuilder]"
)
def BiasPassesTheHost(op, *tensors):
    found = op.nhwc_bias_add(*tensors)
    return torch.empty_like(found).copy_(torch.tensor(found.tolist(), dtype=found.dtype))


@replaces("InferenceBuilder", "rms_norm", "ops.samples_are_right[InferenceBuilder-rms_norm-fp16]")
def NormsAreOfHalves(op, x, gamma, eps):
    op.rms_norm(x, gamma, eps)
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * gamma


@replaces("InferenceBuilder", "rms_norm", "ops.calls_from_several_threads_are_right[InferenceBuilder]")
def InputIsKeptInTheOp(op, x, *rest):
    op.kept = x
    time.sleep(0.05)
    return op.rms_norm(op.kept, *rest)


@replaces(
    "InferenceCoreBuilder",
    "post_layer_norm",
    "ops.samples_are_right[InferenceCoreBuilder-post_layer_norm-bf16]",
)
def InputIsOverwritten(op, out, x, y, *rest):
    out.copy_(x)
    op.post_layer_norm(out, out.clone(), y, *rest)


@replaces("InferenceCoreBuilder", "layer_norm", "ops.samples_are_right[InferenceCoreBuilder-layer_norm-fp32]")
def VarianceInOnePass(op, out, x, gamma, beta, eps):
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    variance = (wide.square().mean(-1, keepdim=True) - mean.square()).clamp_(min=0)
    out.copy_((wide - mean) * torch.rsqrt(variance + eps) * gamma.float() + beta.float())


@replaces(
    "InferenceCoreBuilder", "gated_activation",
    *(f"ops.samples_are_right[InferenceCoreBuilder-gated_activation-{t}]" for t in ("fp16", "bf16")),
)  # fmt: skip
def GateIsRounded(op, out, x, bias, kind):
    x = x if bias is None else x + bias
    gate, value = (torch.empty_like(out) for _ in range(2))
    ones = torch.stack([x[..., 0::2], torch.ones_like(x[..., 0::2])], -1).flatten(-2)
    op.gated_activation(gate, ones, None, kind)
    value.copy_(x[..., 1::2])
    out.copy_(gate * value)


# --- operators of the runtime: one that has to be there, one tried for nothing, a blind trial

_OP = "rms_norm"
_library = torch.library.Library("accel_broken", "FRAGMENT")
_library.define(f"{_OP}(Tensor x, Tensor gamma, float epsilon) -> Tensor")


def _computed(x, gamma, epsilon):
    return (x.float() * (x.float().square().mean(-1, keepdim=True) + epsilon).rsqrt()).to(x.dtype) * gamma


_library.impl(_OP, _computed, "CompositeExplicitAutograd")


def _norm(output, x, gamma, epsilon):
    output.copy_(torch.ops.accel_broken.rms_norm(x, gamma, epsilon))


def _tried():
    try:
        torch.ops.accel_broken.rms_norm(torch.ones(2, 4), torch.ones(4), 1e-3)
    except Exception:
        return False
    return True


def _over_it(self, verbose=True):
    op = super(type(self), self).load(verbose)
    op.rms_norm = _norm
    return op


def _tried_only(self, verbose=True):
    _tried()
    return super(type(self), self).load(verbose)


def _tried_blindly(self, verbose=True):
    return _over_it(self, verbose) if _tried() else super(type(self), self).load(verbose)


for _name, _load, _check in (
    ("OperatorHasToBeThere", _over_it, "op_serves_without_the_runtime_s[InferenceCoreBuilder]"),
    ("OperatorIsTriedForNothing", _tried_only, "operator_that_works_is_used[InferenceCoreBuilder]"),
    ("TrialIsBlind", _tried_blindly, "operator_that_is_wrong_is_not_used"),
):
    breaks(f"op_runtime.{_check}", name=_name)(
        with_builder(
            "InferenceCoreBuilder", load=_load, compatibility=lambda self: (True, f"plain torch, or {_OP}")
        )
    )


# --- the quantizer: truncation, hidden overflows, early rounding, integers and errors that are forgotten

_QUANTIZER = "QuantizerBuilder"
_CHECKS = "op_quantizer"
_SAMPLES = "ops.samples_are_right[QuantizerBuilder"
_BAD = f"ops.arguments_that_do_not_fit_are_refused[{_QUANTIZER}"

functions(
    ("QuantizerHidesOverflow", _QUANTIZER, f"{_SAMPLES}-quantize-fp32]",
     "quantize", lambda op, values, *rest: op.quantize(values.nan_to_num(0.0, 1.0, -1.0), *rest)),
    ("BrainFloatsAreReadAsHalf", _QUANTIZER, f"{_SAMPLES}-quantize-bf16]",
     "quantize", lambda op, values, *rest: op.quantize(
         values.half() if values.dtype == torch.bfloat16 else values, *rest)),
    ("HalvesSaturate", _QUANTIZER, f"{_SAMPLES}-dequantize-fp32]",
     "dequantize", lambda op, *arguments: op.dequantize(*arguments).clamp(-65504, 65504)),
    ("StochasticIsNearest", _QUANTIZER, f"{_CHECKS}.stochastic_rounding_has_no_bias[ds_sr_quantize]",
     "ds_sr_quantize_fp16", lambda op, *arguments: op.ds_quantize_fp16(*arguments)),
    ("RoundingIgnoresTheSeed", _QUANTIZER, f"{_CHECKS}.stochastic_rounding_follows_the_device_s_seed",
     "ds_sr_quantize_fp32", lambda op, *arguments: (torch.seed(), op.ds_sr_quantize_fp32(*arguments))[1]),
    ("ErrorsAreForgotten", _QUANTIZER, f"{_SAMPLES}-loco_swizzle_quant-fp32]", "loco_swizzle_quant",
     lambda op, values, error, *rest: op.loco_swizzle_quant(values, error.clone(), *rest)),
    ("ResultsAreLikeTheirData", _QUANTIZER, f"{_SAMPLES}-dequantize_int8_to_half_experimental-fp32]",
     "dequantize_int8_to_half_experimental",
     lambda op, data, *rest: op.dequantize_int8_to_half_experimental(data, *rest).view(data.shape)),
)  # fmt: skip


@replaces(_QUANTIZER, "swizzle_quant", f"{_SAMPLES}-swizzle_quant-fp32]", f"{_BAD}-swizzle_quant]")
def GroupsStayInOrder(op, values, groups, bits, kind, *order):
    data, steps = op.quantize(values, groups, bits, kind)
    return [data.view(-1), steps]


@replaces(_QUANTIZER, "quantize", f"{_SAMPLES}-quantize-fp32]")
def StepIsBetween(op, values, groups, bits, kind):
    right = op.quantize(values, groups, bits, kind)  # which refuses what does not fit
    if bits != 8 or int(kind) != int(op.Symmetric):
        return right
    rows = values.detach().reshape(groups, -1).float()
    step = (rows.abs().amax(1, keepdim=True) / 127.5).clamp(min=1e-30)
    integers = (rows / step).round().clamp(-128, 127).nan_to_num(0.0).to(torch.int8)
    return [integers.view(values.shape), step]


@replaces(_QUANTIZER, "ds_quantize_fp32", f"{_SAMPLES}-ds_quantize-fp32]")
def RoundingInPlaceTruncates(op, values, groups, bits):
    before = values.clone()
    op.ds_quantize_fp32(values, groups, bits)
    step = (2 * before.view(groups, -1).abs().amax(1, keepdim=True) + 1e-5) / (1 << bits)
    return values.copy_(((before.view(groups, -1) / step).trunc() * step).view(values.shape))


@replaces(_QUANTIZER, "dequantize_fp32", f"{_SAMPLES}-dequantize_fp32-fp32]", f"{_BAD}-dequantize_fp32]")
def RowsAreEven(op, data, *arguments):
    if data.shape[-1] % 2:
        raise ValueError("an odd row")
    return op.dequantize_fp32(data, *arguments)


@replaces(
    _QUANTIZER, "loco_swizzle_quant",
    *(f"{_CHECKS}.float16_errors_complete_what_is_sent[{bits}]" for bits in (4, 8)),
)  # fmt: skip
def SumsAreNotRounded(op, values, error, *rest):
    wide = error.float()
    result = op.loco_swizzle_quant(values.float(), wide, *rest)
    error.copy_(wide)
    return result


@replaces(_QUANTIZER, "loco_swizzle_quant", f"{_BAD}-loco_swizzle_quant]")
def RefusalsAreVague(op, *arguments):
    try:
        return op.loco_swizzle_quant(*arguments)
    except InvalidOpArgument as error:
        raise InvalidOpArgument("an argument is wrong", do="call it otherwise") from error


@replaces(_QUANTIZER, "dequantize", "ops.results_are_new[QuantizerBuilder]")
def ResultsAreReused(op, *arguments):
    result = op.dequantize(*arguments)
    op.buffers = getattr(op, "buffers", {})
    return op.buffers.setdefault(result.numel(), torch.empty_like(result)).copy_(result)


@replaces(_QUANTIZER, "quantized_reduction", f"{_SAMPLES}-quantized_reduction-fp32]")
def SumsAreOfHalves(op, data, steps, groups, out, bits, kind, devices):
    op.quantized_reduction(data, steps, groups, out, bits, kind, devices)
    parts = op.dequantize(data, steps, groups, bits, kind).view(devices, out, -1)
    return op.quantize(sum(parts[1:], parts[0]).float(), out, bits, kind)


# --- the quantizer of floats: strides, halves that go up, types, sizes of groups

_FP = "FPQuantizerBuilder"

functions(
    ("AllStepsAreRead", _FP, "ops.samples_are_right[FPQuantizerBuilder-get_scales-fp32]", "get_scales",
     lambda op, out, groups: (op.get_scales(out, groups), op.get_scales(out, out.shape[0]))[1]),
    ("NothingIsRandom", _FP, "op_fp_quantizer.random_rounding_has_no_bias",
     "quantize", lambda op, out, val, size, stochastic, *rest: op.quantize(out, val, size, 0, *rest)),
    ("ExponentsAreTruncated", _FP, "ops.samples_are_right[FPQuantizerBuilder-quantize-fp32]",
     "quantize", lambda op, out, val, *rest: op.quantize(
         out, val - val.sign() * val.abs().amax() / 480 * 16, *rest)),
    ("FirstPartsAreChosen", _FP, "ops.samples_are_right[FPQuantizerBuilder-selective_dequantize-fp32]",
     "selective_dequantize", lambda op, val, data, indexes, *rest: op.selective_dequantize(
         val, data, torch.zeros_like(indexes), *rest)),
)  # fmt: skip


@replaces(_FP, "quantize", "ops.samples_are_right[FPQuantizerBuilder-quantize-fp32]")
def TinyGroupsAreZero(op, data, values, size, *rest):
    if size < 1 or values.numel() % size or not values.is_floating_point():
        return op.quantize(data, values, size, *rest)
    rows = values.detach().reshape(-1, size)
    tiny = rows.abs().amax(1, keepdim=True) < 1e-5
    return op.quantize(data, rows.masked_fill(tiny, 0).view(values.shape), size, *rest)


@replaces(
    _FP, "quantize", "op_fp_quantizer.codes_are_the_format_s_numbers",
    "ops.arguments_that_do_not_fit_are_refused[FPQuantizerBuilder-quantize]",
)  # fmt: skip
def HalvesGoUp(op, out, val, *rest):
    largest = val.abs().amax() if val.numel() else 0.0
    return op.quantize(out, torch.where(val.abs() < largest, val * (1 + 2**-22), val), *rest)


@replaces(_FP, "quantize", "ops.samples_are_right[FPQuantizerBuilder-quantize-fp32]")
def GroupsAreOfSeveral(op, out, val, size, *rest):
    if size == 1:
        raise ValueError("a group of one number")
    return op.quantize(out, val, size, *rest)


# --- other ops in plain torch: a forgotten scale, another order, bits the other way, data as they lie


@replaces("EvoformerAttnBuilder", "attention", "ops.samples_are_right[EvoformerAttnBuilder-attention-fp32]")
def LastRowsAreForgotten(op, q, *rest):
    op.attention(q, *rest)
    if q.shape[-3] >= 1024:
        rest[4][:, 4:].zero_()


@replaces("EvoformerAttnBuilder", "attention", "ops.samples_are_right[EvoformerAttnBuilder-attention-bf16]")
def DivisorOfPaddingIsRounded(op, q, k, v, bias1, bias2, out, lse):
    op.attention(q, k, v, bias1, bias2, out, lse)
    if bias1.numel() and (bias1 < -1e8).all():
        out.mul_(q.shape[-3])


@replaces(
    "EvoformerAttnBuilder", "attention_bwd", "ops.samples_are_right[EvoformerAttnBuilder-attention_bwd-fp64]"
)
def GradientsAreNotScaled(op, *arguments):
    op.attention_bwd(*arguments)
    arguments[9].mul_(arguments[1].shape[-1] ** 0.5)


@replaces(
    "SpatialInferenceBuilder",
    "nhwc_bias_add_add",
    "ops.samples_are_right[SpatialInferenceBuilder-nhwc_bias_add_add-bf16]",
)
def SumsAreRoundedTwice(op, x, bias, other):
    op.nhwc_bias_add_add(x, bias, other)
    return op.nhwc_bias_add(x, bias) + other


@replaces("PackbitsBuilder", "packbits", "ops.samples_are_right[PackbitsBuilder-packbits-fp32]")
def MinusZeroHasNoSign(op, tensor, *rest):
    op.packbits(tensor, *rest)
    return op.packbits(tensor + 0.0, *rest)


functions(
    ("FirstTokensAreKept", "RandomLTDBuilder", "ops.samples_are_right[RandomLTDBuilder-token_gather-int64]",
     "token_gather", lambda op, rows, index, batch_first: op.token_gather(
         rows, torch.arange(index.shape[1]).to(index).expand_as(index), batch_first)),
    ("MasksAreReadAsTheyLie", "RandomLTDBuilder", "ops.any_argument_may_have_strides[RandomLTDBuilder]",
     "mask_gather_gpt", lambda op, mask, length: op.mask_gather_gpt(
         mask.as_strided(mask.shape, torch.empty(mask.shape).stride()), length)),
)  # fmt: skip
