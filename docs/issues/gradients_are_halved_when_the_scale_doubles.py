# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ZeRO in fp16: in the step after which the loss scale doubles, gradients are half as large."""

import torch
from _engine import engine, step

trained = engine(
    lambda p: torch.optim.SGD(p, lr=0.125),
    fp16={"enabled": True, "initial_scale_power": 4, "loss_scale_window": 2},
    zero_optimization={"stage": 1},
)
for _ in range(4):
    before = trained.optimizer.loss_scale
    change = step(trained)
    print("loss scale", before, "->", trained.optimizer.loss_scale, "the weight changes by", round(change, 4))
