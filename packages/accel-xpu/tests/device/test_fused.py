# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused Adam with torch's own operators, beside plain torch and float64."""

from accel_testkit.torch_fused_tests import TorchFusedAdamTests
from accel_xpu import XPU_Accelerator


class TestFusedAdam(TorchFusedAdamTests):
    accelerator = XPU_Accelerator
