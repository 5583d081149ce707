# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Train the model for three steps, and print the losses. INITIAL_SEED: of the parameters alone."""

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
    model = models.LanguageModel()
torch.manual_seed(1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    loss = models.loss(model, device)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    sys.stdout.write(f"{loss.item():.6f}\n")
