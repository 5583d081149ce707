# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused Adam with torch's own operators, beside plain torch and float64."""

from accel_mps import MPS_Accelerator
from accel_testkit.torch_fused_tests import TorchFusedAdamTests


class TestFusedAdam(TorchFusedAdamTests):
    accelerator = MPS_Accelerator
