# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stage 0 in fp16 leaves the loss unscaled, and divides the gradients by the loss scale."""

import torch
from _engine import engine, step

for scale in (1, 128):
    trained = engine(lambda p: torch.optim.SGD(p, lr=0.5), fp16={"enabled": True, "loss_scale": scale})
    print(f"loss scale {scale}: the weight changes by", round(step(trained), 4))
