# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer by our kernels: an image of the wheel, or compiled on this machine; else plain torch."""

from __future__ import annotations

from accel_cuda.kernels.loading import SOURCE
from accel_ops import kernel_builders


class QuantizerBuilder(kernel_builders.QuantizerBuilder):
    """Quantization in groups for ZeRO++ (qwZ, hpZ, qgZ, LoCo) and for weights."""

    SOURCE = SOURCE
