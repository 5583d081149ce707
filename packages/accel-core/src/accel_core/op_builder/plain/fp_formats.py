# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of few bits with an exponent, and their codes in a stream of bits.

All codes are numbers: there is no infinity and no NaN among them. Below the smallest normal number are others of the
same distance, and 0, as in IEEE 754. In the stream the first code has the lowest bits, as DeepSpeed's kernels have it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Format:
    """bits: of a code, with the sign's. mantissa: of the fraction. largest: what a group's largest number becomes."""

    bits: int
    mantissa: int
    largest: float

    @property
    def bias(self) -> int:
        """What is subtracted from a code's exponent."""
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
