# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's quantizer by kernels of `accel/quantize.h`, with plain torch for what the kernels do not take."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch
from typing_extensions import override

from accel_ops.device.driver_kernels import KernelsUnusable, Lack, Launch, log_fallback
from accel_ops.quantizers.quantizer import Order, Pair, QuantizerFunctions

#: Types of numbers, with their names in kernels.
DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
#: Why plain torch computes with errors of former steps, which the newest DeepSpeed does not have.
_FEEDBACK = "error feedback"
#: Elements of an access of a thread.
PACK = 8
_ALIGNMENT = 16
#: Blocks of a launch in the first dimension; what a driver accepts in a 32-bit number.
_MOST_BLOCKS = (1 << 31) - 1
_WARP, _MOST_THREADS = 64, 256  # of AMD's wide warps, which are two of the others
_POINTER, _LONG, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
_FAMILIES = {
    "quantize": (DTYPES.values(), (_POINTER, _POINTER, _POINTER, _LONG, _INT, _INT, _INT)),
    "dequantize": (("f32", "f16"), (_POINTER, _POINTER, _POINTER, _LONG, _LONG)),
    "reduce": (("",), (_POINTER, _POINTER, _POINTER, _POINTER, _LONG, _LONG, _LONG, _INT)),
}
#: {kernel: C types of its arguments}.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "_".join(filter(None, ("accel", family, dtype, bits, kind))): types
    for family, (dtypes, types) in _FAMILIES.items()
    for dtype in dtypes
    for bits in ("8", "4")
    for kind in ("sym", "asym")
}


class KernelQuantizerFunctions(QuantizerFunctions):
    """The loaded quantizer over kernels. What they do not take goes to plain torch, which also raises the errors.

    device_type: torch's name of the kernels' devices.
    launch: starts a kernel on the current stream of the first tensor's device.
    lack: why plain torch computes, besides the reasons that all devices have.
    """

    def __init__(self, device_type: str, launch: Launch, lack: Lack = lambda tensor: "") -> None:
        self._device_type, self._launch, self._lack = device_type, launch, lack

    @override
    def _quantized(
        self, what: str, values: torch.Tensor, groups: int, bits: int, kind: int, order: Order = (1, 1, 1),
        error: torch.Tensor | None = None, beta: float = 0.0,
    ) -> Pair:  # fmt: skip
        columns = 1 + (int(kind) == self.Asymmetric)
        lack = _FEEDBACK if error is not None else lack_of_width(values.numel(), groups, bits, order)
        lack = lack or lack_of_numbers(self._device_type, (values,))
        lack = lack or self._lack(values)
        if lack:
            log_fallback("quantizer", lack)
            return super()._quantized(what, values, groups, bits, kind, order, error, beta)
        width = values.numel() // groups
        data, parameters = _empty(values, values.numel() * bits // 8, groups, columns)
        name = f"accel_quantize_{DTYPES[values.dtype]}_{bits}_{_kind(columns)}"
        self._launch(name, groups, threads(width), (data, parameters, values, width, *order))
        return [data, parameters]

    @override
    def _dequantized(
        self, data: torch.Tensor, parameters: torch.Tensor, groups: int, bits: int, kind: int, dtype: torch.dtype
    ) -> torch.Tensor:  # fmt: skip
        columns, size = 1 + (int(kind) == self.Asymmetric), data.numel() * 8 // bits if bits else 0
        lack = lack_of_width(size, groups, bits) or self._lack_of_integers(data, parameters, groups * columns)
        lack = lack or self._lack(data)
        if lack or not data.dim():
            log_fallback("quantizer", lack)
            return super()._dequantized(data, parameters, groups, bits, kind, dtype)
        made = data.new_empty((*data.shape[:-1], data.shape[-1] * 8 // bits), dtype=dtype)
        items = threads(size)
        blocks = min(-(-size // (8 * items)), 1 << 14)
        name = f"accel_dequantize_{DTYPES[dtype]}_{bits}_{_kind(columns)}"
        self._launch(name, blocks, items, (made, data, parameters, size // groups, size))
        return made

    @override
    def _reduced(
        self, what: str, data: torch.Tensor, parameters: torch.Tensor, groups: tuple[int, int], bits: int, kind: int,
        devices: int, error: torch.Tensor | None = None, beta: float = 0.0,
    ) -> Pair:  # fmt: skip
        columns, total = 1 + (int(kind) == self.Asymmetric), data.numel() * 8 // bits if bits else 0
        in_groups, out_groups = groups
        lack = _FEEDBACK if error is not None else lack_of_width(total, in_groups, bits, (devices,))
        size = 0 if lack else total // devices
        lack = lack or lack_of_width(size, out_groups, bits)
        lack = lack or self._lack_of_integers(data, parameters, in_groups * columns)
        lack = lack or self._lack(data)
        if lack or not data.dim() or data.shape[-1] % devices:
            log_fallback("quantizer", lack)
            return super()._reduced(what, data, parameters, groups, bits, kind, devices, error, beta)
        out, made = _empty(data, data.numel() // devices, out_groups, columns)
        width = size // out_groups
        arguments = out, made, data, parameters, width, total // in_groups, size, devices
        self._launch(f"accel_reduce_{bits}_{_kind(columns)}", out_groups, threads(width), arguments)
        return [out.view(*data.shape[:-1], data.shape[-1] // devices), made]

    def _lack_of_integers(self, data: torch.Tensor, parameters: torch.Tensor, count: int) -> str:
        if data.dtype not in (torch.int8, torch.uint8) or parameters.dtype != torch.float32:
            return f"integers are {data.dtype} and parameters {parameters.dtype}"
        if parameters.numel() != count:
            return f"{parameters.numel()} parameters for {count}"
        return lack_of_tensors(self._device_type, (data, parameters))


def _kind(columns: int) -> str:
    return "asym" if columns == 2 else "sym"


def _empty(like: torch.Tensor, size: int, groups: int, columns: int) -> Pair:
    # Not torch.empty: `deepspeed.zero.Init` replaces it, and what it returns then is half as large.
    return [like.new_empty(size, dtype=torch.int8), like.new_empty((groups, columns), dtype=torch.float32)]


def threads(width: int) -> int:
    """Return the threads of a block for a group of this size: a multiple of the warp's width."""
    wanted = -(-width // PACK)
    return max(_WARP, min(_MOST_THREADS, -(-wanted // _WARP) * _WARP))


def lack_of_width(size: int, groups: int, bits: int, order: Sequence[int] = ()) -> str:
    """Return why a number of elements in groups is not taken.

    order: factors that have to divide the groups.
    """
    if bits not in (4, 8):
        return f"{bits} bits"
    if not size:
        return "no elements"
    if groups < 1 or size % groups or (order and (min(order) < 1 or groups % math.prod(order))):
        return "groups that do not divide"
    if size // groups % PACK:
        return f"groups of {size // groups} elements, no multiple of {PACK}"
    if groups > _MOST_BLOCKS:
        return f"{groups} groups, more than {_MOST_BLOCKS}"
    return ""


def lack_of_numbers(device_type: str, tensors: Sequence[torch.Tensor]) -> str:
    """Return why tensors are not taken as numbers to quantize."""
    other = [str(tensor.dtype) for tensor in tensors if tensor.dtype not in DTYPES]
    return f"numbers of {other[0]}" if other else lack_of_tensors(device_type, tensors)


def lack_of_tensors(device_type: str, tensors: Sequence[torch.Tensor]) -> str:
    """Return why tensors of any type are not taken."""
    for tensor in tensors:
        if tensor.device.type != device_type or tensor.device != tensors[0].device:
            return f"a tensor on {tensor.device}"
        if tensor.layout != torch.strided or not tensor.is_contiguous() or tensor.is_neg():
            return "a tensor that is not contiguous"
        if not tensor.numel():
            return "no elements"
        if tensor.data_ptr() % _ALIGNMENT:
            return f"a view that does not begin at a multiple of {_ALIGNMENT} bytes"
    return ""


def self_check(launch: Launch, device: torch.device) -> None:
    """Quantize and dequantize numbers; raise `KernelsUnusable` if plain torch on the host computes something else."""

    def into_wrong_numbers(name: str, blocks: int, items: int, arguments: tuple[Any, ...]) -> None:
        # New memory may hold the right ones, of an earlier check: a kernel that does nothing would be believed.
        for made in arguments[: 1 if "dequantize" in name else 2]:
            made.fill_(85)
        launch(name, blocks, items, arguments)

    op, plain = KernelQuantizerFunctions(device.type, into_wrong_numbers), QuantizerFunctions()
    for numbers in (_small_groups(), _wide_groups()):
        groups, there = len(numbers), numbers.to(device)
        for bits in (8, 4):
            for kind in (0, 1):
                found, wanted = (
                    op.quantize(there, groups, bits, kind),
                    plain.quantize(numbers, groups, bits, kind),
                )
                back = op.dequantize(found[0], found[1], groups, bits, kind)
                wanted_back = plain.dequantize(wanted[0], wanted[1], groups, bits, kind)
                pairs = [*zip(found, wanted, strict=True), (back, wanted_back)]
                if not all(torch.equal(ours.cpu(), theirs.cpu()) for ours, theirs in pairs):
                    raise KernelsUnusable(
                        f"a trial of {bits} bits on {device} is not what plain torch computes"
                    )


def _small_groups() -> torch.Tensor:
    """Return groups of many magnitudes: their scales are quotients that an inexact division rounds wrongly."""
    numbers = _numbers(96 * 8).view(96, 8)
    return numbers * 2.0 ** (torch.arange(96).cpu() % 41 - 20)[:, None]


def _wide_groups() -> torch.Tensor:
    """Return groups for which a block has all its threads."""
    return _numbers(2 * 2048).view(2, 2048)


def _numbers(count: int) -> torch.Tensor:
    # Of integers: `deepspeed.zero.Init` replaces torch's constructors, which then ignore a float type.
    return (torch.arange(count).cpu() * 7919 % 2053 - 1026).float() / 7
