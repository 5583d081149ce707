# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Environment variables of this package."""

from accel_core.vendor import Variable

DEPRECATED_FP16 = Variable(
    "DS_ALLOW_DEPRECATED_FP16", "0", "1: train in fp16 on devices of compute capability 6 (DeepSpeed's own)."
)

VARIABLES = (DEPRECATED_FP16,)
