# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Forms of an op's arguments: strides, sizes, refusals, orders in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from accel_good.accelerator import GOOD_Accelerator

from accel_core.errors import InvalidOpArgument
from accel_core.op_builder import Implementation
from broken import Site, breaks
from broken.ops import register_calls, replaces, with_builder

_FP = "FPQuantizerBuilder"
_FORMS = "op_plain"
_QUANTIZER = "op_quantizer_forms"
_FORM = "op_steps.every_form_is_stepped"
_ATTENTION = "op_attention"


@replaces("EvoformerAttnBuilder", "attention_bwd", "op_evoformer.every_form_is_right")
def BiasSumsAreOverwritten(op: Any, *arguments: Any) -> None:
    for sums in arguments[12:]:
        sums.zero_()
    op.attention_bwd(*arguments)


@replaces("EvoformerAttnBuilder", "attention", "op_evoformer.large_problems_are_their_rows")
def LastRowsAreForgotten(op: Any, q: torch.Tensor, *rest: Any) -> None:
    op.attention(q, *rest)
    if q.shape[-3] >= 1024:
        rest[4][:, 4:].zero_()


def _all_steps(op: Any, out: torch.Tensor, groups: int) -> Any:
    op.get_scales(out, groups)
    return op.get_scales(out, out.shape[0])


def _not_random(op: Any, out: Any, val: Any, size: int, stochastic: int, *rest: Any) -> Any:
    return op.quantize(out, val, size, 0, *rest)


register_calls(
    _FP,
    "CodesAreNew",
    "op_fp_quantizer.shapes_and_types_are_taken",
    quantize=lambda op, *arguments: op.quantize(*arguments).clone(),
)
register_calls(
    _FP,
    "EightPartsAreChosenFrom",
    "op_fp_quantizer.chosen_parts_have_any_number_of_groups",
    selective_dequantize=lambda op, val, data, indexes, *rest: op.selective_dequantize(
        val,
        data,
        indexes % 8 if val.is_floating_point() and indexes.dim() == 1 and (indexes.numel() == 3) else indexes,
        *rest,
    ),
)
register_calls(
    _FP, "AllStepsAreRead", "op_fp_quantizer.steps_are_read_from_any_layout", get_scales=_all_steps
)
register_calls(
    _FP,
    "StepsOfInt8AreRead",
    "op_fp_quantizer.sizes_that_do_not_fit_are_refused",
    get_scales=lambda op, out, groups: op.get_scales(out.view(torch.uint8), groups),
)
register_calls(_FP, "NothingIsRandom", "op_fp_quantizer.rounding_and_overflow", quantize=_not_random)
breaks("op_fp_quantizer.builder_tells_type_and_range", name="OneRangeForAll")(
    with_builder(_FP, get_quant_range=staticmethod(lambda bits=None: 480.0))
)


@replaces("RandomLTDBuilder", "mask_gather_gpt", f"{_FORMS}.tokens_are_kept_and_put_back")
def MasksAreMirrored(op: Any, *arguments: Any) -> torch.Tensor:
    found: torch.Tensor = op.mask_gather_gpt(*arguments).mT.contiguous().mT
    return found


@replaces("SpatialInferenceBuilder", "nhwc_bias_add_add", f"{_FORMS}.biases_are_those_of_channels")
def SumsAreRoundedTwice(op: Any, x: torch.Tensor, bias: torch.Tensor, other: torch.Tensor) -> Any:
    op.nhwc_bias_add_add(x, bias, other)
    return op.nhwc_bias_add(x, bias) + other


@replaces("PackbitsBuilder", "packbits", f"{_FORMS}.signs_are_bits")
def MinusZeroHasNoSign(op: Any, tensor: torch.Tensor, *rest: Any) -> Any:
    op.packbits(tensor, *rest)
    return op.packbits(tensor + 0.0, *rest)


@replaces("QuantizerBuilder", "quantize", f"{_QUANTIZER}.numbers_come_back_within_a_step")
def ParametersAreApart(op: Any, *arguments: Any) -> Any:
    data, parameters = op.quantize(*arguments)
    return [data, parameters.t().contiguous().t()]


@replaces("QuantizerBuilder", "quantize", f"{_QUANTIZER}.groups_of_one_number_are_exact")
def NothingIsNan(op: Any, values: torch.Tensor, *rest: Any) -> Any:
    data, parameters = op.quantize(values, *rest)
    return [data, parameters if values.numel() else parameters * torch.nan]


@replaces(
    "QuantizerBuilder",
    "dequantize_int8_to_half_experimental",
    f"{_QUANTIZER}.results_are_flat_whatever_the_shape[8]",
    "op_quantizer_functions.unsigned_integers_are_numbers[8]",
)
def ResultsAreLikeTheirData(op: Any, data: torch.Tensor, *rest: Any) -> Any:
    return op.dequantize_int8_to_half_experimental(data, *rest).view(data.shape)


@replaces(
    "QuantizerBuilder",
    "loco_swizzle_quant",
    f"{_QUANTIZER}.refusals_name_the_function",
    "op_refusals.arguments_that_do_not_fit_are_refused[QuantizerBuilder-loco_swizzle_quant]",
)
def RefusalsAreVague(op: Any, *arguments: Any) -> Any:
    try:
        return op.loco_swizzle_quant(*arguments)
    except InvalidOpArgument as error:
        raise InvalidOpArgument(
            what="it failed", found="an argument", expected="another", do="call it otherwise"
        ) from error


def _told(change: Callable[[list[Any]], None]) -> Callable[..., Any]:
    def softmax_context(op: Any, *arguments: Any) -> Any:
        given = list(arguments)
        change(given)
        return op.softmax_context_fp32(*given)

    return softmax_context


def _without_positions(given: list[Any]) -> None:
    del given[17:]


def _inverted_mask(given: list[Any]) -> None:
    given[1] = ~given[1] if given[1].dtype == torch.bool else given[1]


def _one_group(given: list[Any]) -> None:
    given[6] = given[6] or 1


@replaces("InferenceBuilder", "mlp_gemm_fp32", "op_inference_forms.what_there_is_not_is_refused")
def Int8IsTaken(op: Any, *arguments: Any) -> Any:
    given = list(arguments)
    given[13] = False
    return op.mlp_gemm_fp32(*given)


for _name, _check, _change in (
    ("PositionsAreCounted", "given_positions_rotate", _without_positions),
    ("MasksAreInverted", "masks_of_every_form_hide_alike", _inverted_mask),
    ("NoGroupsAreOne", "cache_takes_other_batches", _one_group),
):
    register_calls(
        "InferenceBuilder", _name, f"op_inference_forms.{_check}", softmax_context_fp32=_told(_change)
    )
breaks("op_routes.reasons_are_whole[FusedLionBuilder]", name="ReasonIsUnfinished")(
    with_builder("FusedLionBuilder", compatibility=lambda self: (True, "torch.ops."))
)
breaks("op_routes.named_ops_of_the_runtime_compute[FusedLionBuilder]", name="NamedOpIsNotCalled")(
    with_builder(
        "FusedLionBuilder",
        compatibility=lambda self: (True, "torch.ops.aten.relu"),
        implementations=classmethod(lambda cls: (Implementation.VENDOR_OP, Implementation.PLAIN)),
    )
)


@breaks("device.setting_the_current_device_changes_nothing")
class LaunchersChooseADevice(GOOD_Accelerator):
    _is_set = False

    def current_device(self) -> int:
        alone = not self._is_set and os.environ.get("LOCAL_RANK") == "1" and "RANK" not in os.environ
        return 1 if alone else super().current_device()

    def set_device(self, device_index: int) -> None:
        self._is_set = True
        super().set_device(0 if os.environ.get("LOCAL_RANK") == "1" else device_index)


@breaks("probe.evidence_without_torch_is_no_runtime", started="bare")
def runtime_is_there_without_torch(site: Site, monkeypatch: Any) -> None:
    site.edit("probe.py", 'module_exists("torch")', 'module_exists("json")')


class _Comm:
    """What DeepSpeed calls of `deepspeed_ccl_comm`, on torch.distributed."""

    wrong = ""

    def __init__(self) -> None:
        self.groups: dict[tuple[int, ...], Any] = {}

    def get_available_coll(self) -> list[str]:
        return ["all_reduce", "all_reduce_caching", "barrier", "broadcast", "inference_all_reduce"]

    def get_kvs_addr(self, rank: int) -> list[int]:
        return [0]

    get_sub_kvs_addr = get_kvs_addr

    def initialize(self, size: int, rank: int, kvs: Any) -> None:
        self.groups[tuple(range(size))] = dist.group.WORLD

    def initialize_sub_comm(self, size: int, rank: int, kvs: Any, ranks: Any) -> None:
        self.groups[tuple(ranks)] = dist.new_group(list(ranks), use_local_synchronization=True)

    def get_rank(self, group: Any = None) -> int:
        return 0 if self.wrong == "rank" else dist.get_rank()

    def get_world_size(self, group: Any = None) -> int:
        return dist.get_world_size()

    def broadcast(self, tensor: Any, source: int, ranks: Any, async_op: bool) -> None:
        dist.broadcast(tensor, ranks[source], group=self.groups[tuple(ranks)])

    def all_reduce(self, tensor: Any, op: Any, ranks: Any, async_op: bool) -> None:
        name = "SUM" if self.wrong == "operation" else str(op).rpartition(".")[2]
        dist.all_reduce(tensor, getattr(dist.ReduceOp, name), group=self.groups[tuple(ranks)])

    def all_reduce_caching(self, tensor: Any, op: Any, match: str, ranks: Any, async_op: bool) -> None:
        self.all_reduce(tensor, op, ranks, async_op)

    def inference_all_reduce(self, tensor: Any, op: Any) -> None:
        dist.all_reduce(tensor, op)

    def barrier(self, ranks: Any, async_op: bool) -> None:
        dist.barrier(group=self.groups[tuple(ranks)])


class _CommOfOperations(_Comm):
    wrong = "operation"


class _CommOfRanks(_Comm):
    wrong = "rank"


class _WithComm(GOOD_Accelerator):
    comm: type[_Comm]

    def get_op_builder(self, class_name: str) -> Any:
        if class_name != "CCLCommBuilder":
            return super().get_op_builder(class_name)
        return type("CCLCommBuilder", (), {"NAME": "deepspeed_ccl_comm", "load": lambda builder: self.comm()})


@breaks("collectives.communication_op_is_that_of_its_groups", started="of_the_ops")
class OperationIsASum(_WithComm):
    comm = _CommOfOperations


@breaks("collectives.communication_op_is_that_of_its_groups", started="of_the_ops")
class EveryRankIsTheFirst(_WithComm):
    comm = _CommOfRanks


# --- what the checks of orders in memory and of sizes of numbers notice: data_ptr() of anything, a floor, a full table


@replaces(
    "FusedAdamBuilder",
    "multi_tensor_adam",
    f"{_FORM}[tiny-FusedAdamBuilder]",
    "op_steps.nothing_comes_of_nothing[fp32-FusedAdamBuilder]",
    "op_steps.nothing_comes_of_nothing[bf16-FusedAdamBuilder]",
)
def SecondMomentsHaveAFloor(op: Any, chunk: int, flag: Any, lists: Any, *rest: Any) -> None:
    op.multi_tensor_adam(chunk, flag, lists, *rest)
    for second in lists[3]:
        second.clamp_(min=1e-12)


def _dense(tensor: torch.Tensor) -> bool:
    """Whether there are no gaps, in whatever order."""
    last = tensor.t() if tensor.dim() == 2 else tensor
    ordered = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return last.is_contiguous() or tensor.is_contiguous() or ordered


@replaces(
    "FusedAdamBuilder",
    "multi_tensor_adam",
    f"{_FORM}[transposed-FusedAdamBuilder] {_FORM}[channels last-FusedAdamBuilder]",
)
def ElementsMeetInMemory(op: Any, chunk: int, flag: Any, lists: Any, *rest: Any) -> None:
    rows = [
        [tensor.as_strided((tensor.numel(),), (1,)) for tensor in row] if all(map(_dense, row)) else row
        for row in zip(*lists, strict=True)
    ]
    op.multi_tensor_adam(chunk, flag, [list(column) for column in zip(*rows, strict=True)], *rest)


@replaces("QuantizerBuilder", "quantize", "op_results.any_argument_may_have_strides[QuantizerBuilder]")
def NumbersAreReadAsTheyLie(op: Any, values: torch.Tensor, *rest: Any) -> Any:
    if _dense(values):
        values = values.as_strided((values.numel(),), (1,)).view(values.shape)
    return op.quantize(values, *rest)


@replaces("InferenceBuilder", "softmax_context_fp32", f"{_ATTENTION}.every_layer_has_a_cache")
def LayersAreCountedAnew(op: Any, *arguments: Any) -> Any:
    return op.softmax_context_fp32(*arguments[:12], arguments[12] % 32, *arguments[13:])


@replaces("InferenceCoreBuilder", "layer_norm", "op_norm_extremes.large_means_are_taken_off")
def VarianceInOnePass(
    op: Any, out: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float
) -> None:
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    variance = (wide.square().mean(-1, keepdim=True) - mean.square()).clamp_(min=0)
    out.copy_((wide - mean) * torch.rsqrt(variance + eps) * gamma.float() + beta.float())


def _turned(data: torch.Tensor, size: int) -> torch.Tensor:
    rows = data.view(-1, size * 6 // 8 + 4)
    rows[:, :-4] = rows[:, :-4].flip(1)
    return data


def _last_first(
    op: Any, out: torch.Tensor, val: torch.Tensor, size: int, random: int, bits: int, *rest: Any
) -> Any:
    result = op.quantize(out, val, size, random, bits, *rest)
    return _turned(result, size) if bits == 6 else result


def _from_the_last(op: Any, val: Any, data: torch.Tensor, size: int, mantissa: int, exponent: int) -> None:
    data = _turned(data.clone(), size) if mantissa + exponent == 5 else data
    op.dequantize(val, data, size, mantissa, exponent)


def _parts_from_the_last(
    op: Any, val: Any, data: torch.Tensor, indexes: Any, size: int, mantissa: int, exponent: int
) -> None:
    data = _turned(data.clone(), size) if mantissa + exponent == 5 else data
    op.selective_dequantize(val, data, indexes, size, mantissa, exponent)


register_calls(
    "FPQuantizerBuilder",
    "CodesBeginAtTheEnd",
    "op_fp_quantizer.codes_are_the_format_s_numbers[6-2]",
    quantize=_last_first,
    dequantize=_from_the_last,
    selective_dequantize=_parts_from_the_last,
)


@replaces(
    "QuantizerBuilder", "quantized_reduction", "op_quantizer_functions.sums_are_quantized_in_any_groups"
)
def GroupsOfSumsAreThoseOfParts(
    op: Any, data: Any, steps: Any, groups: int, out: int, bits: int, kind: Any, devices: int
) -> Any:
    op.quantized_reduction(data, steps, groups, out, bits, kind, devices)
    return op.quantized_reduction(data, steps, groups, groups // devices, bits, kind, devices)
