# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn as nn
from torch.profiler import ProfilerActivity, profile, record_function

torch.manual_seed(0)
activities = [ProfilerActivity.CPU]
if torch.cuda.is_available():
    device = "cuda"
    activities += [ProfilerActivity.CUDA]
else:
    device = "cpu"

model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)).to(device)
inputs = torch.randn(5, 6).to(device)

with profile(activities=activities, record_shapes=True) as prof, record_function("model_inference"):
    out = model(inputs)
    loss = out.pow(2).mean()

names = {event.key for event in prof.key_averages()}
print("model_inference" in names, "aten::addmm" in names or "aten::linear" in names)
table = prof.key_averages().table(sort_by="cpu_time_total", row_limit=5)
assert "model_inference" in table
print(f"loss {loss.item():.6f}")
