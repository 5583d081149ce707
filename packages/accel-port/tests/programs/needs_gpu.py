# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Refuses to run without a GPU."""

import sys

import torch
import torch.nn as nn


def main():
    if not torch.cuda.is_available():
        print("CUDA is not available. Exiting.")
        sys.exit(1)
    torch.manual_seed(21)
    gpu = torch.cuda.current_device()
    torch.cuda.set_device(gpu)
    print("GPUs:", torch.cuda.device_count() > 0, "current:", gpu)
    model = nn.Linear(4, 4).cuda(gpu)
    x = torch.randn(8, 4).cuda(gpu, non_blocking=True)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    for step in range(4):
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, f"loss {loss.item():.6f}")
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 0


if __name__ == "__main__":
    main()
