# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Extreme numbers, and file I/O."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from accel_good.accelerator import GOOD_Accelerator
from accel_good.op_builder import TABLE
from accel_good.traits import TRAITS

from accel_core.op_builder import OpBuilder, OpTable
from accel_ops.op_builder import AsyncIOBuilder
from broken import breaks
from broken.ops import replaces

_QUANTIZER = "op_quantizer_extremes"
_FILES = "op_file_io"


@replaces(
    "FusedLionBuilder", "multi_tensor_lion", "op_steps.gradient_that_is_not_finite_is_seen[FusedLionBuilder]"
)
def LionHidesNan(op: Any, chunk: int, flag: Any, lists: Any, *rest: Any) -> None:
    op.multi_tensor_lion(chunk, flag, [[grad.nan_to_num() for grad in lists[0]], *lists[1:]], *rest)


@replaces(
    "FusedAdamBuilder", "multi_tensor_adam", "op_steps.flag_of_overflows_is_left_alone[FusedAdamBuilder]"
)
def AdamSetsTheFlag(op: Any, chunk: int, flag: Any, lists: Any, *rest: Any) -> None:
    op.multi_tensor_adam(chunk, flag, lists, *rest)
    if not all(bool(grad.isfinite().all()) for grad in lists[0]):
        flag.fill_(1)


@replaces("QuantizerBuilder", "dequantize", "op_results.inputs_stay_and_results_are_new[QuantizerBuilder]")
def ResultsAreReused(op: Any, *arguments: Any) -> torch.Tensor:
    result = op.dequantize(*arguments)
    op.buffers = getattr(op, "buffers", {})
    buffer: torch.Tensor = op.buffers.setdefault(result.numel(), torch.empty_like(result))
    return buffer.copy_(result)


@replaces(
    "QuantizerBuilder",
    "quantized_reduction",
    f"{_QUANTIZER}.sums_of_devices_are_of_float32",
    "op_quantizer_functions.shapes_are_kept op_quantizer_functions.sums_are_quantized_in_any_groups[8]",
)
def SumsAreOfHalves(
    op: Any, data: Any, steps: Any, groups: int, out: int, bits: int, kind: int, devices: int
) -> Any:
    op.quantized_reduction(data, steps, groups, out, bits, kind, devices)
    parts = op.dequantize(data, steps, groups, bits, kind).view(devices, out, -1)
    return op.quantize(sum(parts[1:], parts[0]).float(), out, bits, kind)


@replaces("QuantizerBuilder", "dequantize", f"{_QUANTIZER}.numbers_beyond_half_are_infinite")
def HalvesSaturate(op: Any, *arguments: Any) -> torch.Tensor:
    result: torch.Tensor = op.dequantize(*arguments)
    return result.clamp(-65504, 65504)


@replaces(
    "QuantizerBuilder", "ds_sr_quantize_fp32", f"{_QUANTIZER}.stochastic_rounding_follows_the_device_s_seed"
)
def RoundingIgnoresTheSeed(op: Any, *arguments: Any) -> Any:
    torch.seed()
    return op.ds_sr_quantize_fp32(*arguments)


@replaces("InferenceBuilder", "rms_norm", "op_norm_extremes.large_activations_are_normed")
def NormsAreOfHalves(op: Any, x: torch.Tensor, gamma: torch.Tensor, eps: float) -> Any:
    op.rms_norm(x, gamma, eps)
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * gamma


@replaces(
    "InferenceCoreBuilder", "post_layer_norm", "op_norm_extremes.norms_may_be_written_over_their_inputs"
)
def InputIsOverwritten(op: Any, out: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *rest: Any) -> None:
    out.copy_(x)
    op.post_layer_norm(out, out.clone(), y, *rest)


@replaces("QuantizerBuilder", "quantize", "op_quantizer_extremes.numbers_of_bfloat16_keep_their_range")
def BrainFloatsAreReadAsHalf(op: Any, values: torch.Tensor, *rest: Any) -> Any:
    return op.quantize(values.half() if values.dtype == torch.bfloat16 else values, *rest)


@replaces("FPQuantizerBuilder", "quantize", "op_fp_quantizer.tiny_groups_keep_their_numbers")
def TinyGroupsAreZero(op: Any, data: torch.Tensor, values: torch.Tensor, size: int, *rest: Any) -> Any:
    if size < 1 or values.numel() % size or not values.is_floating_point():
        return op.quantize(data, values, size, *rest)
    rows = values.detach().reshape(-1, size)
    tiny = rows.abs().amax(1, keepdim=True) < 1e-5
    return op.quantize(data, rows.masked_fill(tiny, 0).view(values.shape), size, *rest)


class Files:
    """A handle with some functions replaced."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handle, name)


class _Truncating(Files):
    def sync_pwrite(self, buffer: Any, file: str, offset: int = 0) -> Any:
        os.truncate(file, offset)
        return self.handle.sync_pwrite(buffer, file, offset)


class _FromTheStart(Files):
    def async_pread(self, buffer: Any, file: str, offset: int = 0) -> Any:
        return self.handle.async_pread(buffer, file, 0)


class _Silent(Files):
    lost = 0

    def async_pread(self, buffer: Any, file: str, offset: int = 0) -> Any:
        whole = Path(file).exists() and Path(file).stat().st_size >= offset + buffer.numel()
        self.lost += not whole
        return self.handle.async_pread(buffer, file, offset) if whole else 0

    def wait(self) -> int:
        count: int = self.handle.wait() + self.lost
        self.lost = 0
        return count


class _OneSize(Files):
    def get_block_size(self) -> int:
        return 1 << 20


class Served(GOOD_Accelerator):
    """The pretended device with the file I/O that all vendors have."""

    handle: type[Files] = Files
    functions: ClassVar[dict[str, Any]] = {}

    _builder: type[OpBuilder] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.traits = {name: trait for name, trait in TRAITS.items() if name != "AsyncIOBuilder"}
        self.op_table = OpTable(
            TABLE.package, {**TABLE, "AsyncIOBuilder": f"{TABLE.package}.files:AsyncIOBuilder"}
        )

    def get_op_builder(self, class_name: str) -> Any:
        if class_name != "AsyncIOBuilder":
            return super().get_op_builder(class_name)
        kind = type(self)
        kind._builder = kind._builder or type(class_name, (AsyncIOBuilder,), {"load": self._load})
        return kind._builder

    @classmethod
    def _load(cls, verbose: bool = True) -> Any:
        op = AsyncIOBuilder().load(verbose)
        functions = {"aio_handle": lambda *arguments: cls.handle(op.aio_handle(*arguments)), **cls.functions}
        return SimpleNamespace(**{**vars(op), **functions})


def _what_fits(there: torch.Tensor, here: torch.Tensor) -> int:
    size = min(there.numel(), here.numel())
    there.view(-1)[:size] = here.reshape(-1)[:size]
    return 0


breaks(f"{_FILES}.functions_without_a_handle_transfer", name="MemcpyCopiesWhatFits")(
    type("MemcpyCopiesWhatFits", (Served,), {"functions": {"deepspeed_memcpy": _what_fits}})
)


class _AsItLies(Files):
    def sync_pwrite(self, buffer: torch.Tensor, file: str, offset: int = 0) -> Any:
        flat = buffer.as_strided((buffer.numel(),), (1,))
        return self.handle.sync_pwrite(flat, file, offset)


class _Emptying(Files):
    def sync_pwrite(self, buffer: torch.Tensor, file: str, offset: int = 0) -> Any:
        if not buffer.numel():
            Path(file).write_bytes(b"")
        return self.handle.sync_pwrite(buffer, file, offset)


class _ComparedAtTheStart(Files):
    def read(self, buffer: torch.Tensor, file: str, validate: bool, offset: int = 0) -> Any:
        return self.handle.read(buffer, file, validate, 0 if validate else offset)


class _GivingUp(Files):
    """The requests are made while they are waited for, up to the first error."""

    def __init__(self, handle: Any) -> None:
        super().__init__(handle)
        self.begun: list[Any] = []

    def async_pread(self, buffer: torch.Tensor, file: str, offset: int = 0) -> Any:
        self.begun.append((buffer, file, offset))
        return 0

    def wait(self) -> int:
        waiting, self.begun = self.begun, []
        count: int = self.handle.wait()
        for request in waiting:
            self.handle.sync_pread(*request)
        return count + len(waiting)


for _class, *_checks in (
    (_Truncating, "writes_leave_the_rest_of_a_file", "locked_tensors_can_be_transferred"),
    (_FromTheStart, "reads_in_flight_each_fill_their_tensor"),
    (_Silent, "requests_that_fail_say_so"),
    (_OneSize, "handle_tells_what_it_was_given"),
    (_GivingUp, "error_ends_no_other_request"),
    (_AsItLies, "strides_are_transferred_or_refused"),
    (_Emptying, "nothing_is_transferred_of_empty_tensors"),
    (_ComparedAtTheStart, "transfers_may_be_compared_afterwards"),
):
    _kind = type(f"Files{_class.__name__}", (Served,), {"handle": _class})
    breaks(*(f"{_FILES}.{check}" for check in _checks), name=_kind.__name__)(_kind)
