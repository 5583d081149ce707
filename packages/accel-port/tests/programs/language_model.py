# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# coding: utf-8
"""Word language model in the old style: if args.cuda: model.cuda()."""

import argparse
import math

import torch
import torch.nn as nn

parser = argparse.ArgumentParser(description="RNN Language Model")
parser.add_argument("--seed", type=int, default=1111)
parser.add_argument("--cuda", action="store_true", help="use CUDA")
parser.add_argument("--bptt", type=int, default=4)
args = parser.parse_args()

torch.manual_seed(args.seed)
if torch.cuda.is_available():
    if not args.cuda:
        print("WARNING: You have a CUDA device, so you should probably run with --cuda")
    else:
        torch.cuda.manual_seed(args.seed)

ntokens, bsz = 15, 3
corpus = torch.randint(0, ntokens, (60,))


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()
    if args.cuda:
        data = data.cuda()
    return data


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid):
        super().__init__()
        self.drop = nn.Dropout(0.1)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.GRU(ninp, nhid)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid = nhid

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        return self.decoder(output), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters()).data
        return weight.new(1, bsz, self.nhid).zero_()


train_data = batchify(corpus, bsz)
model = RNNModel(ntokens, 8, 8)
if args.cuda:
    model.cuda()
criterion = nn.CrossEntropyLoss()

hidden = model.init_hidden(bsz)
for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
    seq_len = min(args.bptt, len(train_data) - 1 - i)
    data, targets = train_data[i : i + seq_len], train_data[i + 1 : i + 1 + seq_len].view(-1)
    model.zero_grad()
    output, hidden = model(data, hidden.detach())
    loss = criterion(output.view(-1, ntokens), targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-2.0)
    print(f"| {batch:3d} | loss {loss.item():5.6f} | ppl {math.exp(loss.item()):8.6f}")
