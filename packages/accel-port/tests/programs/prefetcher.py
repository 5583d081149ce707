# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0

import torch
import torch.nn as nn


class data_prefetcher:
    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream()
        self.preload()

    def preload(self):
        try:
            self.next_input, self.next_target = next(self.loader)
        except StopIteration:
            self.next_input = None
            self.next_target = None
            return
        with torch.cuda.stream(self.stream):
            self.next_input = self.next_input.cuda(non_blocking=True)
            self.next_target = self.next_target.cuda(non_blocking=True)
            self.next_input = self.next_input.float().sub_(0.5)

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        input = self.next_input
        target = self.next_target
        if input is not None:
            input.record_stream(torch.cuda.current_stream())
        if target is not None:
            target.record_stream(torch.cuda.current_stream())
        self.preload()
        return input, target


def main():
    torch.manual_seed(0)
    loader = [(torch.rand(8, 6).pin_memory(), torch.randint(0, 3, (8,)).pin_memory()) for _ in range(5)]
    model = nn.Linear(6, 3).cuda()
    criterion = nn.CrossEntropyLoss().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    prefetcher = data_prefetcher(loader)
    input, target = prefetcher.next()
    i = 0
    while input is not None:
        i += 1
        loss = criterion(model(input), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        print(f"{i}\tLoss {loss.item():.6f}")
        input, target = prefetcher.next()


if __name__ == "__main__":
    main()
