# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(6)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


class Model(nn.Module):
    def __init__(self, input_size, output_size):
        super().__init__()
        self.fc = nn.Linear(input_size, output_size)

    def forward(self, input):
        return self.fc(input)


model = Model(5, 2)
if torch.cuda.device_count() > 4:
    print("Let's use", torch.cuda.device_count(), "GPUs!")
    model = nn.DataParallel(model)
model.to(device)

optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
for _i in range(4):
    input = torch.randn(10, 5).to(device)
    output = model(input)
    loss = F.mse_loss(output, torch.ones_like(output))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("Outside: input size", input.size(), "output_size", output.size(), f"loss {loss.item():.6f}")

state = model.module.state_dict() if isinstance(model, nn.DataParallel) else model.state_dict()
print(sorted(state))
