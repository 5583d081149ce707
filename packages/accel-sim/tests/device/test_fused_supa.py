# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.deepspeed of torch_supa_ext against float64."""

from typing import Any

import torch

from .conftest import Device
from .float64 import adam64, steps


def test_multi_tensor_adam(device: Device) -> None:
    def call(given: list[Any], step: int, decoupled: int, bias_correction: int) -> None:
        flag, modes = torch.zeros(1, device=given[0][0].device), (step, decoupled, bias_correction)
        torch.ops.deepspeed.multi_tensor_adam(65536, flag, *given, 0.01, 0.9, 0.99, 1e-6, *modes, 0.1)

    steps(device, call, adam64, decoupled=1, bias_correction=1, step=5)
