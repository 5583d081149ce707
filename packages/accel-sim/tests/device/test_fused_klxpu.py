# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.custom_ops of torch_xmlir against float64."""

from typing import Any

import torch

from .conftest import Device
from .float64 import adam64, steps


def test_multi_tensor_adam(device: Device) -> None:
    def call(given: list[Any], step: int, decoupled: int, bias_correction: int) -> None:
        sizes, modes = [each.numel() for each in given[0]], (step, decoupled, bias_correction)
        torch.ops.custom_ops.multi_tensor_adam(*given, sizes, 0.01, 0.9, 0.99, 1e-6, 0.1, *modes)

    steps(device, call, adam64, decoupled=1, bias_correction=1, step=5)
