# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Speech recognition in small: features of unequal length, CTC."""

import logging
import sys

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
logger = logging.getLogger(__name__)


class Utterances(Dataset):
    def __init__(self, n=12):
        g = torch.Generator().manual_seed(1)
        self.items = []
        for i in range(n):
            frames = 20 + 3 * (i % 4)
            self.items.append(
                (torch.randn(frames, 8, generator=g), torch.randint(1, 6, (4 + i % 3,), generator=g))
            )

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate_fn(batch):
    feats = pad_sequence([f for f, _ in batch], batch_first=True)
    targets = torch.cat([t for _, t in batch])
    feat_lens = torch.tensor([len(f) for f, _ in batch])
    target_lens = torch.tensor([len(t) for _, t in batch])
    return feats, feat_lens, targets, target_lens


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.proj = nn.Linear(8, 16)
        self.out = nn.Linear(16, 6)

    def forward(self, x):
        return self.out(torch.relu(self.proj(self.norm(x)))).log_softmax(-1).transpose(0, 1)


def to_device(batch, device):
    return [x.to(device, non_blocking=True) for x in batch]


def main():
    torch.manual_seed(2)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", 0)
    logger.info("Device: %s", device)

    loader = DataLoader(
        Utterances(), batch_size=4, collate_fn=collate_fn, pin_memory=torch.cuda.is_available()
    )
    model = Model().to(device)
    ctc = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    for epoch in range(3):
        total = 0.0
        for batch in loader:
            feats, feat_lens, targets, target_lens = to_device(batch, device)
            log_probs = model(feats)
            loss = ctc(log_probs, targets, feat_lens, target_lens)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        logger.info(f"epoch {epoch}, loss {total / len(loader):.6f}")


if __name__ == "__main__":
    main()
