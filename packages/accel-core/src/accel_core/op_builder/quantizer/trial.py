# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A few numbers through a device's kernels, before they are used: its arithmetic may not be the host's."""

from __future__ import annotations

from typing import Any

import torch

from accel_core.op_builder.device_kernels import KernelsUnusable
from accel_core.op_builder.kernel_arguments import Launch
from accel_core.op_builder.quantizer.functions import QuantizerFunctions
from accel_core.op_builder.quantizer.kernels import KernelQuantizerFunctions


def trial(launch: Launch, device: torch.device) -> None:
    """Quantize and dequantize numbers; raise `KernelsUnusable` if plain torch on the host computes something else."""

    def into_wrong_numbers(name: str, blocks: int, items: int, arguments: tuple[Any, ...]) -> None:
        # New memory may hold the right ones, of an earlier trial: a kernel that does nothing would be believed.
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
