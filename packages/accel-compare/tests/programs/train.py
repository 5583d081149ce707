# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Train a model for three steps: train.py PROGRAM. Prints the losses. INITIAL_SEED: of the parameters alone."""

import os
import sys

import faults
import models
import torch

from accel_core import get_accelerator

device = get_accelerator().device_name()
faults.plant(device)
torch.manual_seed(int(os.environ.get("INITIAL_SEED", "0")))
with torch.device(device):  # the parameters are drawn on the device
    model = models.PROGRAMS[sys.argv[1]]()
torch.manual_seed(1)
epsilon = 1e-8 if device == "cpu" else float(os.environ.get("OPTIMIZER_FAULT", "1e-8"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=epsilon)
for _ in range(3):
    loss = models.loss(sys.argv[1], model, device)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    sys.stdout.write(f"{loss.item():.6f}\n")
