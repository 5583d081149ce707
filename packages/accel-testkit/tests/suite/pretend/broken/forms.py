# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Forms of an op's arguments: strides, sizes, refusals, orders in memory."""

import os
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
_ATTENTION = "op_attention"


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
    _FP, "AllStepsAreRead", "op_fp_quantizer.steps_are_read_from_any_layout", get_scales=_all_steps
)
register_calls(_FP, "NothingIsRandom", "op_fp_quantizer.rounding_and_overflow", quantize=_not_random)
breaks("op_fp_quantizer.builder_tells_type_and_range", name="OneRangeForAll")(
    with_builder(_FP, get_quant_range=staticmethod(lambda bits=None: 480.0))
)


@replaces("SpatialInferenceBuilder", "nhwc_bias_add_add", f"{_FORMS}.biases_are_those_of_channels")
def SumsAreRoundedTwice(op: Any, x: torch.Tensor, bias: torch.Tensor, other: torch.Tensor) -> Any:
    op.nhwc_bias_add_add(x, bias, other)
    return op.nhwc_bias_add(x, bias) + other


@replaces("PackbitsBuilder", "packbits", f"{_FORMS}.signs_are_bits")
def MinusZeroHasNoSign(op: Any, tensor: torch.Tensor, *rest: Any) -> Any:
    op.packbits(tensor, *rest)
    return op.packbits(tensor + 0.0, *rest)


@replaces(
    "QuantizerBuilder",
    "dequantize_int8_to_half_experimental",
    "op_quantizer_functions.unsigned_integers_are_numbers[8]",
)
def ResultsAreLikeTheirData(op: Any, data: torch.Tensor, *rest: Any) -> Any:
    return op.dequantize_int8_to_half_experimental(data, *rest).view(data.shape)


@replaces(
    "QuantizerBuilder",
    "loco_swizzle_quant",
    "op_refusals.arguments_that_do_not_fit_are_refused[QuantizerBuilder-loco_swizzle_quant]",
)
def RefusalsAreVague(op: Any, *arguments: Any) -> Any:
    try:
        return op.loco_swizzle_quant(*arguments)
    except InvalidOpArgument as error:
        raise InvalidOpArgument(
            what="it failed", found="an argument", expected="another", do="call it otherwise"
        ) from error


@replaces("InferenceBuilder", "softmax_context_fp32", "op_inference_forms.masks_of_every_form_hide_alike")
def MasksAreInverted(op: Any, rows: torch.Tensor, mask: torch.Tensor, *rest: Any) -> Any:
    return op.softmax_context_fp32(rows, ~mask if mask.dtype == torch.bool else mask, *rest)


register_calls(
    "InferenceBuilder",
    "NoGroupsAreOne",
    "op_inference_forms.cache_takes_other_batches",
    softmax_context_fp32=lambda op, *a: op.softmax_context_fp32(*a[:6], a[6] or 1, *a[7:]),
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


class _SumsOnly:
    """What DeepSpeed calls of `deepspeed_ccl_comm`, on torch.distributed; whatever the operation, it is a sum."""

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
        return dist.get_rank()

    def get_world_size(self, group: Any = None) -> int:
        return dist.get_world_size()

    def broadcast(self, tensor: Any, source: int, ranks: Any, async_op: bool) -> None:
        dist.broadcast(tensor, ranks[source], group=self.groups[tuple(ranks)])

    def all_reduce(self, tensor: Any, op: Any, ranks: Any, async_op: bool) -> None:
        dist.all_reduce(tensor, dist.ReduceOp.SUM, group=self.groups[tuple(ranks)])

    def all_reduce_caching(self, tensor: Any, op: Any, match: str, ranks: Any, async_op: bool) -> None:
        self.all_reduce(tensor, op, ranks, async_op)

    def inference_all_reduce(self, tensor: Any, op: Any) -> None:
        dist.all_reduce(tensor, op)

    def barrier(self, ranks: Any, async_op: bool) -> None:
        dist.barrier(group=self.groups[tuple(ranks)])


@breaks("collectives.communication_op_is_that_of_its_groups", started="of_the_ops")
class OperationIsASum(GOOD_Accelerator):
    def get_op_builder(self, class_name: str) -> Any:
        if class_name != "CCLCommBuilder":
            return super().get_op_builder(class_name)
        return type("CCLCommBuilder", (), {"NAME": "deepspeed_ccl_comm", "load": lambda builder: _SumsOnly()})


# --- what the checks of orders in memory and of sizes of numbers notice: data_ptr() of anything, a floor, a full table


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
