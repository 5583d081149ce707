# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's floating-point quantizer in plain torch: the formats of 4 to 12 bits, and groups of numbers in them.

`FP_Quantize` uses it for weights and LoRA. All codes are numbers: there is no infinity and no NaN among them. Below the
smallest normal number are others of the same distance, and 0, as in IEEE 754. In the stream of bits the first code has
the lowest bits, as DeepSpeed's kernels have it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from accel_core.op_builder import OpFunctions
from accel_ops import torch_fallbacks
from accel_ops.op import Op


@dataclass(frozen=True)
class Format:
    """bits: of a code, with the sign's. mantissa: of the fraction. largest: what a group's largest number becomes."""

    bits: int
    mantissa: int
    largest: float

    @property
    def bias(self) -> int:
        """The number that is subtracted from a code's exponent."""
        return int((1 << (self.bits - self.mantissa - 2)) - 1)

    @property
    def sign(self) -> int:
        """The bit of the sign; smaller codes are the numbers that are not negative."""
        return 1 << (self.bits - 1)

    def bytes(self, count: int) -> int:
        """Return the bytes of a number of codes."""
        return count * self.bits // 8

    def encoded(self, scaled: torch.Tensor, stochastic: bool) -> torch.Tensor:
        """Return the codes of float32 numbers, at most `largest`, as int32. Rounded to even, or by random numbers."""
        size = scaled.abs()
        # A float32 has its exponent above 23 bits of mantissa.
        exponent = (size.view(torch.int32) >> 23).sub_(127).clamp_(1 - self.bias, 255)
        unit = (exponent.sub(self.mantissa).add_(127) << 23).view(torch.float32)
        steps = size.div_(unit)
        steps = steps.add_(torch.rand_like(steps)).floor_() if stochastic else steps.round_()
        # Rounded up to the next power of two, the number of steps goes over into the exponent.
        codes = steps.nan_to_num_(0.0).to(torch.int32) + (exponent + (self.bias - 1) << self.mantissa)
        codes = codes.clamp_(0, self.sign - 1)
        return torch.where(scaled < 0, codes + self.sign, codes)

    def numbers(self, device: torch.device) -> torch.Tensor:
        """Return the float32 numbers of all codes."""
        codes = torch.arange(self.sign)
        exponent, fraction = codes >> self.mantissa, codes & ((1 << self.mantissa) - 1)
        whole = fraction + (exponent > 0).long() * (1 << self.mantissa)
        numbers = whole * 2.0 ** (exponent.clamp(min=1) - self.bias - self.mantissa)
        return torch.cat([numbers, -numbers]).to(device, torch.float32)

    def packed(self, codes: torch.Tensor) -> torch.Tensor:
        """Return int32 codes in rows as rows of numbers below 256, the bytes. A row has to be whole bytes."""
        if self.bits == 8:
            return codes
        together, size = self._block()
        parts = codes.view(codes.shape[0], -1, together)
        block = parts[..., 0]
        for number in range(1, together):
            block = block | parts[..., number] << number * self.bits
        return torch.stack([block >> 8 * byte & 255 for byte in range(size)], -1).flatten(1)

    def unpacked(self, data: torch.Tensor) -> torch.Tensor:
        """Return the codes in rows of bytes, as indices."""
        data = data.long()
        if self.bits == 8:
            return data
        together, size = self._block()
        parts = data.view(data.shape[0], -1, size)
        block = parts[..., 0]
        for byte in range(1, size):
            block = block | parts[..., byte] << 8 * byte
        mask = 2 * self.sign - 1
        return torch.stack([block >> self.bits * number & mask for number in range(together)], -1).flatten(1)

    def _block(self) -> tuple[int, int]:
        """Return the fewest codes that are whole bytes, and these bytes: 3 at most, which an int32 holds."""
        whole = math.lcm(self.bits, 8)
        return whole // self.bits, whole // 8


#: {(bits, bits of the mantissa)}. The largest numbers are DeepSpeed's.
FORMATS = {
    (each.bits, each.mantissa): each
    for each in (
        Format(8, 3, 480.0),
        Format(8, 2, 114688.0),
        Format(12, 7, 510.0),
        Format(6, 2, 28.0),
        Format(4, 1, 6.0),
    )
}
# FP_Quantize asks for 12 bits with a mantissa of 4. DeepSpeed's kernels choose by the product of exponent and mantissa,
# and 7 * 4 is e4m7 to them.
FORMATS[12, 4] = FORMATS[12, 7]


#: Bytes of the step that follows the codes of a group, a float32.
_STEP = 4
#: The mantissa of a size, if DeepSpeed has one for it; of two with 8 bits the default.
_MANTISSA = {12: 7, 8: 3, 6: 2, 4: 1}


class FPQuantizerFunctions(OpFunctions):
    """The loaded op: e4m3 and e5m2 (a mantissa of 3 and 2 bits), and e4m7, e3m2 and e2m1 of 12, 6 and 4 bits.

    A group is a row of `group_size` codes and the four bytes of its step, as DeepSpeed's CUDA kernels lay it out.
    Codes are rounded to even, below the smallest normal number, too; 0 stays 0. DeepSpeed's have neither 0 nor
    numbers below the smallest normal one, of which it makes the smallest. A group with a NaN or an infinity is not
    finite afterwards.
    """

    OP = "fp_quantizer"

    def quantize(
        self,
        out: torch.Tensor,
        val: torch.Tensor,
        group_size: int,
        stochastic_rounding: int,
        q_bits: int,
        q_mantisa_bits: int,
    ) -> torch.Tensor:
        """Write codes and steps of `val` to `out` (groups, group_size * q_bits / 8 + 4) uint8; return it.

        A last group that `val` does not fill ends with zeros. `out`, for which callers divide and drop the rest, has no
        row for it: what is returned then is its own tensor, of one dimension. Stochastic rounding takes its
        numbers from the device's default generator.
        """
        what = "quantize"
        form = _format(what, q_bits, q_mantisa_bits)
        torch_fallbacks.check_floating(what, val=val)
        groups, width = _groups(what, val, group_size, form)
        whole = val.numel() // group_size
        _codes(what, "out", out, (whole, width + _STEP))
        flat = val.detach().reshape(-1).to(torch.float32)
        if groups > whole:
            flat = functional.pad(flat, (0, groups * group_size - flat.numel()))
            out = out.new_empty(groups, width + _STEP)
        rows = flat.view(groups, group_size)
        step = rows.abs().amax(1, keepdim=True)
        # Of a group whose step would be subnormal, which devices may take for 0, it is the smallest normal number.
        step = step.div_(self._largest(form)).clamp_(min=torch.finfo(torch.float32).tiny)
        out[:, :width] = self._bytes(form, rows, step, bool(stochastic_rounding))
        out[:, width:] = step.view(out.dtype)
        return out.flatten() if groups > whole else out

    def dequantize(
        self,
        val: torch.Tensor,
        val_q: torch.Tensor,
        group_size: int,
        q_mantisa_bits: int,
        q_exponent_bits: int,
    ) -> None:
        """Write the numbers of codes and steps `val_q` to `val`.

        A float32 `val_q` has a column of steps: DeepSpeed's matmul_fp8 joins codes with what `get_scales` returns.
        """
        what = "dequantize"
        if val_q.dtype == torch.float32 and val_q.dim() == 2:
            steps = val_q[:, -1:].contiguous().view(torch.uint8)
            val_q = torch.cat([val_q[:, :-1].to(torch.uint8), steps], 1)
        form = _format(what, q_mantisa_bits + q_exponent_bits + 1, q_mantisa_bits)
        groups, width = _groups(what, val, group_size, form)
        _codes(what, "val_q", val_q, (groups, width + _STEP), flat=True)
        self._write(what, val, val_q.reshape(groups, width + _STEP), form)

    def selective_dequantize(
        self,
        val: torch.Tensor,
        val_q: torch.Tensor,
        indexes: torch.Tensor,
        group_size: int,
        q_mantisa_bits: int,
        q_exponent_bits: int,
    ) -> None:
        """Write to `val` the parts of `val_q` at these indices of the first dimension."""
        what = "selective_dequantize"
        torch_fallbacks.check_dimensions(what, "indexes", indexes, 1)
        torch_fallbacks.check_indices(what, "indexes", indexes)
        count = indexes.numel()
        form = _format(what, q_mantisa_bits + q_exponent_bits + 1, q_mantisa_bits)
        groups, width = _groups(what, val, group_size, form)
        if not count or val.numel() % (count * group_size):
            found = f"{val.numel()} elements in groups of {group_size} for {count} indices"
            raise torch_fallbacks.invalid(what, found, "whole groups for each index")
        part = groups // count * (width + _STEP)
        if val_q.dtype != torch.uint8 or val_q.numel() % part:
            found = f"val_q of {val_q.dtype} with {val_q.numel()} bytes"
            raise torch_fallbacks.invalid(what, found, f"torch.uint8, a multiple of {part}")
        chosen = val_q.reshape(-1, part).index_select(0, indexes)
        self._write(what, val, chosen.view(groups, -1), form)

    def get_scales(self, out: torch.Tensor, num_groups: int) -> torch.Tensor:
        """Return (groups, 1) float32 from the first four bytes of each group's row."""
        if out.dtype != torch.uint8 or out.dim() != 2 or out.shape[0] < num_groups or out.shape[1] < _STEP:
            found = f"{out.dtype} of shape {tuple(out.shape)}"
            raise torch_fallbacks.invalid(
                "get_scales", found, f"torch.uint8 of shape ({num_groups}, {_STEP})"
            )
        return _floats(out[:num_groups, :_STEP])

    def _largest(self, form: Format) -> float:
        """Return what the largest number of a group becomes, divided by its step."""
        return form.largest

    def _bytes(self, form: Format, rows: torch.Tensor, steps: torch.Tensor, stochastic: bool) -> torch.Tensor:
        """Return the codes of float32 rows, by a column of steps, as rows of bytes, which are numbers below 256."""
        return form.packed(form.encoded(rows / steps, stochastic))

    def _numbers(
        self, form: Format, data: torch.Tensor, steps: torch.Tensor, dtype: torch.dtype
    ) -> torch.Tensor:
        """Return the numbers of rows of uint8, by a column of steps."""
        return form.numbers(data.device)[form.unpacked(data)].mul_(steps).to(dtype)

    def _write(self, what: str, val: torch.Tensor, rows: torch.Tensor, form: Format) -> None:
        torch_fallbacks.check_floating(what, val=val)
        numbers = self._numbers(form, rows[:, :-_STEP], _floats(rows[:, -_STEP:]), val.dtype)
        val.detach().copy_(numbers.flatten()[: val.numel()].view(val.shape))


def _format(what: str, bits: int, mantissa: int) -> Format:
    if (bits, mantissa) not in FORMATS:
        expected = ", ".join(f"{few} of {many}" for many, few in FORMATS)
        raise torch_fallbacks.invalid(what, f"{bits} bits, {mantissa} of them the mantissa's", expected)
    return FORMATS[bits, mantissa]


def _groups(what: str, val: torch.Tensor, group_size: int, form: Format) -> tuple[int, int]:
    """Return the number of groups, of which the last need not be full, and the bytes of a group's codes."""
    if group_size < 1 or group_size * form.bits % 8:
        found = f"{val.numel()} elements in groups of {group_size}, of {form.bits} bits"
        expected = "groups of whole bytes: choose group_size in the QuantizationConfig"
        raise torch_fallbacks.invalid(what, found, expected)
    return -(-val.numel() // group_size), form.bytes(group_size)


def _codes(what: str, name: str, codes: torch.Tensor, shape: tuple[int, int], flat: bool = False) -> None:
    if codes.dtype != torch.uint8:
        raise torch_fallbacks.invalid(what, f"{name} of {codes.dtype}", "torch.uint8")
    if not flat or codes.numel() != shape[0] * shape[1]:
        torch_fallbacks.check_shape(what, name, codes, shape)


def _floats(rows: torch.Tensor) -> torch.Tensor:
    """Return four bytes a row as a float32. Of a single row the bytes may lie anywhere: hence a copy."""
    return rows.clone(memory_format=torch.contiguous_format).view(torch.float32)


def _default_quant_dtype() -> torch.dtype:
    """Return the type of quantized weights."""
    return torch.uint8


def _quant_range(q_bits: int | None = None) -> float:
    """Return the largest number of a size (default: 8 bits). Raises InvalidOpArgument for an unknown one."""
    bits = 8 if q_bits is None else q_bits
    return _format("get_quant_range", bits, _MANTISSA.get(bits, 0)).largest


FP_QUANTIZER = Op(
    "fp_quantizer", "FPQuantizerBuilder",
    "Weights in few bits with an exponent, for QuantizedParameter, QuantizedLinear and LoRA.", FPQuantizerFunctions,
    {"get_default_quant_dtype": staticmethod(_default_quant_dtype), "get_quant_range": staticmethod(_quant_range)},
)  # fmt: skip
FPQuantizerBuilder = FP_QUANTIZER.builder(__name__)
