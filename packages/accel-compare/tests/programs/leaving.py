# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Train two models of one class for a step, and leave without the interpreter's end."""

import os

import torch
from torch import nn

from accel_core import get_accelerator

torch.manual_seed(0)
device = get_accelerator().device_name()
models = [nn.Linear(4, 4).to(device) for _ in range(2)]
for model in models:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4, device=device)).sum().backward()
    optimizer.step()
os._exit(0)
