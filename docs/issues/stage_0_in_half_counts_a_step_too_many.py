# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stage 0 in bf16 or fp16 takes a step with gradients of zero first, which Adam counts."""

import torch
from _engine import engine, step

trained = engine(torch.optim.AdamW, bf16={"enabled": True, "immediate_grad_update": False})
step(trained)
(state,) = trained.optimizer.optimizer.state.values()
print("Adam's steps after one step:", int(state["step"]))
