# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops by our kernels: Adam (torch's own operators first) and Lion, and the quantizer; else plain torch."""

from __future__ import annotations

from accel_cuda.kernels.loading import SOURCE
from accel_ops.optimizers.fused import ADAM, LION
from accel_ops.quantizers.quantizer import QUANTIZER
from accel_ops.routes import kernel_adam, kernel_lion, kernel_quantizer, torch_fused_adam

FusedAdamBuilder = ADAM.builder(__name__, torch_fused_adam("cuda", then=kernel_adam(SOURCE)))
FusedLionBuilder = LION.builder(__name__, kernel_lion(SOURCE))
QuantizerBuilder = QUANTIZER.builder(__name__, kernel_quantizer(SOURCE))
