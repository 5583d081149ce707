# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn as nn


class Batch:
    """Source and target with the mask; moves as one."""

    def __init__(self, src, trg):
        self.src = src
        self.trg = trg
        self.mask = src != 0
        self.ntokens = int((trg != 0).sum())

    def cuda(self):
        self.src = self.src.cuda()
        self.trg = self.trg.cuda()
        self.mask = self.mask.cuda()
        return self


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 8)
        self.out = nn.Linear(8, 11)

    def forward(self, batch):
        h = self.emb(batch.src) * batch.mask.unsqueeze(-1)
        return self.out(h.cumsum(1))


def run_epoch(batches, model, optimizer, use_gpu):
    for batch in batches:
        if use_gpu:
            batch = batch.cuda()
        logits = model(batch)
        loss = (
            nn.functional.cross_entropy(logits.flatten(0, 1), batch.trg.flatten(), reduction="sum")
            / batch.ntokens
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss %.6f tokens %d" % (loss.item(), batch.ntokens))


if __name__ == "__main__":
    torch.manual_seed(17)
    use_gpu = torch.cuda.is_available()
    model = Model()
    if use_gpu:
        model = model.cuda()
    batches = [Batch(torch.randint(0, 11, (2, 5)), torch.randint(1, 11, (2, 5))) for _ in range(4)]
    run_epoch(batches, model, torch.optim.SGD(model.parameters(), lr=0.1), use_gpu)
