# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mixed precision if there is a GPU, float32 otherwise."""

import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast


class Classifier(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.out = nn.Linear(width, 3)

    def forward(self, tokens):
        return self.out(self.embed(tokens).mean(1))


def train(model, batches, device, amp):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scaler = GradScaler(enabled=amp)
    for tokens, labels in batches:
        tokens = tokens.to(device)
        labels = labels.to(device)
        optimizer.zero_grad()
        with autocast(enabled=amp, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(tokens), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        yield loss.item()


if __name__ == "__main__":
    torch.manual_seed(5)
    amp = torch.cuda.is_available()
    device = torch.device("cuda") if amp else torch.device("cpu")
    model = Classifier().to(device)
    batches = [(torch.randint(0, 20, (4, 6)), torch.randint(0, 3, (4,))) for _ in range(5)]
    for i, loss in enumerate(train(model, batches, device, amp)):
        print("%d %.6f" % (i, loss))
