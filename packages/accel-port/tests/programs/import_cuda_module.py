# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import torch
from torch import cuda, nn, optim

if cuda.is_available():
    print("%d device(s)" % min(cuda.device_count(), 1))
device = torch.device("cuda" if cuda.is_available() else "cpu")

torch.manual_seed(13)
model = nn.LSTM(4, 6, batch_first=True).to(device)
head = nn.Linear(6, 1).to(device)
opt = optim.Adam([*model.parameters(), *head.parameters()], lr=0.02)

for epoch in range(4):
    x = torch.randn(3, 7, 4)
    y = x.sum((1, 2))
    x, y = x.to(device), y.to(device)
    out, (h, c) = model(x)
    loss = (head(h[-1]).squeeze(-1) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if cuda.is_available():
        cuda.synchronize()
    print(f"{epoch}: {loss.item():.6f}")
if cuda.is_available():
    cuda.empty_cache()
