# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The Acme card for PyTorch: importing it makes `torch.acme` and the device type `acme`."""

from __future__ import annotations

import torch

torch.utils.rename_privateuse1_backend("acme")

# Loading the library registers allocator, guard, hooks and operators under PrivateUse1.
from torch_acme import _C, device  # noqa: E402, F401

torch._register_device_module("acme", device)
torch.utils.generate_methods_for_privateuse1_backend()
