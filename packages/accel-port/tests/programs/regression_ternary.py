# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"Using {device} device")

X = torch.linspace(-1, 1, 64).unsqueeze(1)
y = X**3 + 0.1 * torch.sin(9 * X)
X, y = X.to(device), y.to(device)

model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
loss_fn = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

for step in range(20):
    loss = loss_fn(model(X), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        print(f"step {step}: loss {loss.item():.6f}")

noise = torch.zeros(4, 1, device=device)
if device == "cuda":
    torch.cuda.empty_cache()
print(f"prediction {model(noise).mean().item():.6f}")
