# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Save and load, in the ways that people name the device."""

import argparse
import os
import tempfile

import torch
import torch.nn as nn


def save_checkpoint(state, filename):
    torch.save(state, filename)


def load_checkpoint(path, model, use_cuda):
    checkpoint = torch.load(path, map_location=None if use_cuda else "cpu")
    model.load_state_dict(checkpoint["state_dict"])
    return checkpoint["epoch"]


def load_on_gpu(path, gpu=0):
    return torch.load(path, map_location=f"cuda:{gpu}")


def load_by_lambda(path):
    if torch.cuda.is_available():
        return torch.load(path, map_location=lambda storage, loc: storage.cuda(0))
    return torch.load(path, map_location=lambda storage, loc: storage)


def load_for_rank(path, rank=0):
    map_location = {"cuda:0": "cuda:%d" % rank}
    return torch.load(path, map_location=map_location, weights_only=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", default="", type=str)
    parser.parse_args()
    torch.manual_seed(3)
    use_cuda = torch.cuda.is_available()
    device = torch.device("cuda:0" if use_cuda else "cpu")
    model = nn.Linear(5, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 5).to(device), torch.randn(8, 2).to(device)
    path = os.path.join(tempfile.mkdtemp(), "checkpoint.pth.tar")
    for epoch in range(3):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        save_checkpoint({"epoch": epoch + 1, "state_dict": model.state_dict()}, path)
        print(f"epoch {epoch} loss {loss.item():.6f}")
    print("resumed at", load_checkpoint(path, model, use_cuda))
    states = [torch.load(path, map_location=device), load_by_lambda(path)]
    if use_cuda:
        states += [load_on_gpu(path), load_for_rank(path)]
    for state in states:
        model.load_state_dict(state["state_dict"])
        weight = state["state_dict"]["weight"]
        print(weight.device.type, f"{nn.functional.mse_loss(model(x), y).item():.6f}")


if __name__ == "__main__":
    main()
