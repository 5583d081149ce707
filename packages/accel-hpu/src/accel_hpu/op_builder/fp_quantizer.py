# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""fp_quantizer's e4m3 by Habana's casts to and from float8, as far as a self-check shows that they are right.

Of DeepSpeed's format float8_e4m3fn lacks the largest number, 480 (its code is NaN), and Gaudi 2 all above 240. So a
group's largest number becomes 448 or 240 here: its codes mean the same wherever they are read.
"""

from __future__ import annotations

from functools import partial

import torch
from typing_extensions import override

from accel_core.op_builder import Implementation
from accel_ops.device import self_checks
from accel_ops.op import LoadedOp, Route, Unusable, has_op
from accel_ops.quantizers.fp_quantizer import FORMATS, FP_QUANTIZER, Format, FPQuantizerFunctions

TO, FROM = "hpu.cast_to_fp8_v2", "hpu.cast_from_fp8"
_E4M3 = FORMATS[8, 3]
#: float8_e4m3fn's largest number, and that of Gaudi 2.
_LARGEST = (448.0, 240.0)
_NAN = 127  # the code that is NaN in float8_e4m3fn
_DEVICE = "hpu"
_PRECISION = 1e-5
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class CastFunctions(FPQuantizerFunctions):
    """The loaded op. Stochastic rounding and other formats are in plain torch.

    largest: what a group's largest number becomes. reads: whether codes are read by a cast, too.
    """

    def __init__(self, largest: float, reads: bool) -> None:
        self._cast_largest, self._reads = largest, reads

    @override
    def _largest(self, form: Format) -> float:
        return self._cast_largest if form is _E4M3 else super()._largest(form)

    @override
    def _bytes(self, form: Format, rows: torch.Tensor, steps: torch.Tensor, stochastic: bool) -> torch.Tensor:
        if form is not _E4M3 or stochastic or rows.device.type != _DEVICE:
            return super()._bytes(form, rows, steps, stochastic)
        return _cast_to(rows, steps)

    @override
    def _numbers(
        self, form: Format, data: torch.Tensor, steps: torch.Tensor, dtype: torch.dtype
    ) -> torch.Tensor:
        if form is not _E4M3 or not self._reads or data.device.type != _DEVICE:
            return super()._numbers(form, data, steps, dtype)
        top = torch.where(data > _NAN, -form.largest, form.largest) * steps
        return torch.where(data % 128 == _NAN, top.to(dtype), _cast_from(data, steps, dtype))


def _cast_to(rows: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Return the codes of rows divided by a column of steps, as uint8."""
    cast, _ = torch.ops.hpu.cast_to_fp8_v2(rows, steps.reciprocal(), False, False, torch.float8_e4m3fn)
    codes: torch.Tensor = cast.view(torch.uint8)
    return codes


def _cast_from(data: torch.Tensor, steps: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    cast: torch.Tensor = torch.ops.hpu.cast_from_fp8(
        data.contiguous().view(torch.float8_e4m3fn), steps, dtype
    )
    return cast


def self_check(device: str) -> tuple[float, bool, str]:
    """Return a group's largest number (0: casts are not used), whether casts read codes, and what is wrong."""
    for name in (TO, FROM):
        if not has_op(name):
            return 0.0, False, f"this runtime has no torch.ops.{name}"
    lack = ""
    for largest in _LARGEST:
        lack = self_checks.unsupported_reason(
            f"torch.ops.{TO}", device, partial(_wrong_codes, largest, device)
        )
        if not lack:
            break
    else:
        return 0.0, False, lack
    checks = [partial(_wrong_numbers, dtype, device) for dtype in _DTYPES]
    lack = self_checks.unsupported_reason(f"torch.ops.{FROM}", device, *checks)
    return largest, not lack, lack


def _steps() -> torch.Tensor:
    return torch.tensor([[1.0], [0.37], [3e-5], [1234.5]])


def _wrong_codes(largest: float, device: str) -> str:
    """Cast the format's numbers up to the largest, and others between them; return what is wrong."""
    numbers = _E4M3.numbers(torch.device("cpu")).double()  # torch's name for host memory
    between = torch.rand(1024, generator=torch.Generator().manual_seed(1)).mul_(24).sub_(12).exp2_()
    values = torch.cat([numbers, between, -between])
    values = values[values.abs() <= largest]
    steps = _steps()
    rows = (values * steps).float()
    codes = _cast_to(rows.to(device), steps.to(device)).cpu()
    scaled = rows.double() / steps
    nearest = numbers[_E4M3.encoded(scaled.float(), stochastic=False).long()]
    apart, least = ((found - scaled).abs() for found in (numbers[codes.long()], nearest))
    if not (apart <= least + _PRECISION * scaled.abs()).all():
        return f"{TO} does not round to the nearest number of e4m3, of those up to {largest:g}"
    return ""


def _wrong_numbers(dtype: torch.dtype, device: str) -> str:
    """Cast all codes back; return what is wrong."""
    codes = torch.tensor([code for code in range(256) if code % 128 != _NAN], dtype=torch.uint8)
    steps = torch.cat([_steps()[:2], torch.tensor([[torch.nan]])])
    data = codes.expand(3, -1).contiguous()
    found = _cast_from(data.to(device), steps.to(device), dtype).cpu()
    wanted = _E4M3.numbers(codes.device).double()[codes.long()] * steps
    apart = (found - wanted).abs()[:2]
    if found[2].isfinite().any() or not (apart <= torch.finfo(dtype).eps * wanted[:2].abs()).all():
        return f"{FROM} to {str(dtype).removeprefix('torch.')} gives other numbers"
    return ""


def _load() -> LoadedOp:
    largest, reads, lack = self_check(_DEVICE)
    if not largest:
        raise Unusable(lack)
    casts = f"torch.ops.{TO} and {FROM}" if reads else f"torch.ops.{TO}"
    others = "other formats" if reads else f"other formats and reading ({lack})"
    what = f"{casts} for e4m3, up to {largest:g}; plain torch for {others}"
    return LoadedOp(CastFunctions(largest, reads), lambda: what)


FPQuantizerBuilder = FP_QUANTIZER.builder(
    __name__,
    Route(
        (Implementation.VENDOR_OP,),
        lambda: f"torch.ops.{TO} and {FROM} if they work when first loaded, else plain torch",
        _load,
        lambda: "" if has_op(TO) else f"this runtime has no torch.ops.{TO}",
    ),
)
