# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def buffered_future_mask(tensor, cache=None):
    if cache is None:
        cache = {}
    dim = tensor.size(1)
    if dim not in cache or cache[dim].device != tensor.device:
        mask = torch.triu(torch.full((dim, dim), float("-inf")), 1)
        if tensor.is_cuda:
            mask = mask.cuda()
        cache[dim] = mask
    return cache[dim]


def causal_attention(q, k, v):
    scores = q @ k.transpose(1, 2) / math.sqrt(q.size(-1))
    return F.softmax(scores + buffered_future_mask(q), -1) @ v


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + self.out(causal_attention(q, k, v))

    def positions(self, length):
        positions = torch.arange(length)
        if next(self.parameters()).is_cuda:
            positions = positions.cuda()
        return positions


def main():
    torch.manual_seed(8)
    model = Block(8)
    use_cuda = torch.cuda.is_available()
    if use_cuda:
        model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(4):
        x = torch.randn(2, 6, 8)
        if use_cuda:
            x = x.cuda()
        pos = model.positions(6).to(x.dtype) / 6
        loss = (model(x) - pos[None, :, None]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(i, f"{loss.item():.6f}")


if __name__ == "__main__":
    main()
