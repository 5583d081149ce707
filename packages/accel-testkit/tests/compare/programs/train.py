# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Train a model for three steps: train.py language|images. Prints the losses."""

from __future__ import annotations

import os
import sys

import faults
import models
import torch
from torch import nn

from accel_core import get_accelerator

device = get_accelerator().device_name()
faults.plant(device)
torch.manual_seed(0)
with torch.device(device):  # the parameters are drawn on the device
    model = models.LanguageModel() if sys.argv[1] == "language" else models.Images()
epsilon = 1e-4 if os.environ.get("OPTIMIZER_FAULT") and device != "cpu" else 1e-8
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=epsilon)
for _ in range(3):
    if sys.argv[1] == "language":
        ids = torch.randint(models.WORDS, (4, 17)).to(device)
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    else:
        images, labels = torch.randn(4, 3, 8, 8, device=device), torch.randint(models.WORDS, (4,)).to(device)
        loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    sys.stdout.write(f"{loss.item():.6f}\n")
