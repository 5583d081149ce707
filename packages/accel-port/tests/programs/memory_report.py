# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn as nn


def print_memory(tag):
    if not torch.cuda.is_available():
        return
    allocated = torch.cuda.memory_allocated() / 1024**2
    peak = torch.cuda.max_memory_allocated() / 1024**2
    reserved = torch.cuda.memory_reserved() / 1024**2
    assert peak >= allocated
    assert reserved >= allocated
    print(f"[{tag}] memory in use: {allocated > 0}")
    torch.cuda.reset_peak_memory_stats()


def total_memory():
    if torch.cuda.is_available():
        return torch.cuda.get_device_properties(0).total_memory
    return 0


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    print_memory("start")
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(device)
    x = torch.randn(2, 5, 8).to(device)
    print_memory("model")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(x).pow(2).mean() + model(x).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.6f}")
    print_memory("end")
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        print(f"free below total: {free <= total}, {total_memory() > 0}")


main()
