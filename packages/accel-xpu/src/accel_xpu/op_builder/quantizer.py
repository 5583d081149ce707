# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer by our kernels, as SPIR-V in the wheel; else plain torch."""

from __future__ import annotations

from accel_ops import kernel_builders
from accel_xpu.kernels.loading import SOURCE


class QuantizerBuilder(kernel_builders.QuantizerBuilder):
    """Quantization in groups for ZeRO++ (qwZ, hpZ, qgZ, LoCo) and for weights."""

    SOURCE = SOURCE
