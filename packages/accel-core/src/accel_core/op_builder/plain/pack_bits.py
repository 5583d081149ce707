# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Signs of numbers in the bits of bytes, which the 1-bit optimizers of DeepSpeed 0.18 send."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from accel_core.op_builder.base import OpBuilder
from accel_core.op_builder.functions import OpFunctions
from accel_core.op_builder.plain import checks
from accel_core.op_builder.routes import Route

_BITS = tuple(range(7, -1, -1))


class PackBitsFunctions(OpFunctions):
    """The loaded op. `rank` is not used: the result is on the tensor's device, as upstream's stream is."""

    OP = "pack_bits"

    def packbits(self, tensor: torch.Tensor, input_size: int, rank: int) -> torch.Tensor:
        """Return ceil(input_size / 8) uint8 for the first `input_size` numbers: a bit is 1 where the sign is +.

        The first of eight is the highest bit; the bits after the last number are 0.
        """
        if not tensor.is_floating_point():
            raise checks.invalid("packbits", f"{tensor.dtype}", "a float type")
        if not 0 <= input_size <= tensor.numel():
            raise checks.invalid(
                "packbits", f"input_size = {input_size}", f"at most {tensor.numel()} numbers"
            )
        signs = torch.zeros((input_size + 7) // 8 * 8, dtype=torch.uint8, device=tensor.device)
        signs[:input_size] = ~tensor.reshape(-1)[:input_size].signbit()
        rows = signs.view(-1, 8)
        packed = rows[:, 7].clone()
        for column, bit in enumerate(_BITS[:-1]):
            packed |= rows[:, column] << bit
        return packed

    def unpackbits(self, tensor: torch.Tensor, input_size: int, rank: int) -> torch.Tensor:
        """Return 8 * input_size float32 for the first `input_size` bytes: 1 for a bit of 1, -1 for one of 0."""
        if tensor.dtype != torch.uint8:
            raise checks.invalid("unpackbits", f"{tensor.dtype}", "torch.uint8")
        if not 0 <= input_size <= tensor.numel():
            raise checks.invalid(
                "unpackbits", f"input_size = {input_size}", f"at most {tensor.numel()} bytes"
            )
        data = tensor.reshape(-1)[:input_size]
        bits = torch.stack([(data >> bit) & 1 for bit in _BITS], 1)
        return bits.view(-1).to(torch.float32).mul_(2).sub_(1)


class PackbitsBuilder(OpBuilder):
    """Packing of signs for 1-bit Adam, 0/1 Adam and 1-bit LAMB with `comm_backend_name` "compressed"."""

    NAME = "pack_bits"
    BUILD_VAR = "DS_BUILD_PACK_BITS"
    ROUTES: ClassVar[tuple[Route, ...]] = (Route.PLAIN,)

    def compatibility(self) -> tuple[bool, str]:
        """Return True: plain torch runs everywhere."""
        return True, "plain torch"

    def load(self, verbose: bool = True) -> Any:
        """Return an object with upstream's functions."""
        return PackBitsFunctions()
