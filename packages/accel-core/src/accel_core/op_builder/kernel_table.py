# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""All kernels of `accel/kernels.h`, for the launchers of devices."""

from __future__ import annotations

from typing import Any

from accel_core.op_builder.kernel_arguments import packed
from accel_core.op_builder.quantizer import kernels as quantizer
from accel_core.op_builder.steps import kernels as steps

#: {kernel: C types of its arguments}.
ARGUMENTS: dict[str, tuple[Any, ...]] = {**quantizer.ARGUMENTS, **steps.ARGUMENTS}


def packed_arguments(kernel: str, arguments: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """Return the array of pointers that drivers take, and the C values that it points to; keep both for the call."""
    return packed(ARGUMENTS[kernel], arguments)
