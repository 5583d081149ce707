# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""safe_set_full_fp32_param and ZeRO 3, where the ranks divide a parameter unevenly: it takes more than there is."""

from types import SimpleNamespace

import torch
from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3

held = torch.zeros(2)  # rank 1 of two has the third element and one of padding
optimizer = SimpleNamespace(
    _get_fp32_opt_state_partition=lambda *_, **__: (held, 0),
    _get_param_partition_rank=lambda _: 1,
    _swappable_optimizer_subgroup=lambda _: False,
)
parameter = SimpleNamespace(requires_grad=True, ds_numel=3)
try:
    DeepSpeedZeroOptimizer_Stage3.set_full_hp_param(optimizer, torch.ones(3), parameter)
    print("no error")
except RuntimeError as error:
    print("RuntimeError:", error)
