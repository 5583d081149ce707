# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer by our kernels, as SPIR-V in the wheel; else plain torch."""

from __future__ import annotations

from accel_ops.quantizers.quantizer import QUANTIZER
from accel_ops.routes import kernel_quantizer
from accel_xpu.kernels.loading import SOURCE

QuantizerBuilder = QUANTIZER.builder(__name__, kernel_quantizer(SOURCE))
