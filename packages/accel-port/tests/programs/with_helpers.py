# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn as nn
from helpers import Timer, get_device, move_to, seed_everything

seed_everything(42)
device = get_device()
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.25), nn.Linear(8, 2)).to(device)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
batches = [{"x": torch.randn(6, 4), "y": torch.randn(6, 2), "name": "b%d" % i} for i in range(5)]
timer = Timer(device)
for batch in batches:
    batch = move_to(batch, device)
    with timer:
        loss = nn.functional.smooth_l1_loss(model(batch["x"]), batch["y"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(batch["name"], f"loss = {loss.item():.6f}")
assert timer.elapsed > 0
print("parameters on", next(model.parameters()).device.type)
