# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A parameter with a gradient of 0 is NaN after ZenFlow's step on the selected columns in fp16."""

import torch
from deepspeed.ops.adam.zenflow_torch_adam import ZenFlowSelectiveAdamW

for eps in (1e-8, 1e-7):
    parameter = torch.nn.Parameter(torch.ones(2, 2, dtype=torch.float16))
    optimizer = ZenFlowSelectiveAdamW([parameter], lr=0.5, eps=eps, weight_decay=0.0)
    parameter.selected_indices = torch.tensor([0])
    parameter.selected_grad = torch.tensor([[0.0], [1.0]], dtype=torch.float16)
    optimizer.step()
    print(f"eps {eps}: parameters", parameter.data[:, 0].tolist())
