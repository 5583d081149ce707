# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# Recommendation in the style of 2018: everything lives on the GPU.
import torch
import torch.nn as nn

torch.manual_seed(1)
torch.cuda.manual_seed(1)

n_users, n_items = 12, 9
user_emb = nn.Embedding(n_users, 4).cuda()
item_emb = nn.Embedding(n_items, 4).cuda()
params = list(user_emb.parameters()) + list(item_emb.parameters())
optimizer = torch.optim.Adam(params, lr=0.05)

users = torch.cuda.LongTensor([0, 3, 5, 7, 11, 2])
items = torch.cuda.LongTensor([1, 2, 8, 0, 4, 4])
ratings = torch.cuda.FloatTensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
ones = torch.cuda.FloatTensor(users.size(0)).fill_(1)
total = torch.cuda.FloatTensor(1).zero_()
hist = torch.cuda.FloatTensor(n_items, 2).zero_()

for step in range(6):
    score = (user_emb(users) * item_emb(items)).sum(1).sigmoid()
    loss = nn.functional.binary_cross_entropy(score, ratings)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.detach()
    hist[items, 0] += ones
    print("step", step, f"loss: {loss.item():.6f}")

hits = (score > 0.5).type(torch.cuda.FloatTensor)
print(f"mean {(total / 6).item():.6f}", "hits", hits.sum().item(), "hist", hist.sum().item())
