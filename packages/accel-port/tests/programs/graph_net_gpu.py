# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Node classification with --gpu, -1 for the CPU."""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class GraphConv(nn.Module):
    def __init__(self, in_feats, out_feats):
        super().__init__()
        self.linear = nn.Linear(in_feats, out_feats)

    def forward(self, adj, x):
        return adj @ self.linear(x)


class GCN(nn.Module):
    def __init__(self, in_feats, hidden, classes):
        super().__init__()
        self.conv1 = GraphConv(in_feats, hidden)
        self.conv2 = GraphConv(hidden, classes)

    def forward(self, adj, x):
        return self.conv2(adj, F.relu(self.conv1(adj, x)))


def main(args):
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    if args.gpu >= 0 and torch.cuda.is_available():
        torch.cuda.manual_seed(args.seed)

    edges = np.random.rand(24, 24) < 0.2
    adj = torch.FloatTensor(edges + np.eye(24))
    adj = adj / adj.sum(1, keepdim=True)
    features = torch.randn(24, 6)
    labels = torch.randint(0, 3, (24,))
    train_mask = torch.arange(24) < 16

    device = f"cuda:{args.gpu}" if torch.cuda.is_available() and args.gpu >= 0 else "cpu"
    cuda = args.gpu >= 0 and torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(args.gpu)
    adj, features, labels = adj.to(device), features.to(device), labels.to(device)
    train_mask = train_mask.to(device)

    model = GCN(6, 8, 3)
    if cuda:
        model.cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    durations = []
    for epoch in range(args.n_epochs):
        t0 = time.time()
        logits = model(adj, features)
        loss = F.cross_entropy(logits[train_mask], labels[train_mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if cuda:
            torch.cuda.synchronize()
        durations.append(time.time() - t0)
        print(f"Epoch {epoch:05d} | Loss {loss.item():.6f}")
    assert np.mean(durations) > 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int, default=-1, help="gpu id, -1 for the CPU")
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--n-epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=3)
    main(parser.parse_args())
