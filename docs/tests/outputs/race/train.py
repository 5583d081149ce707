# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A copy on a stream of its own, for which nobody waits."""

import torch

copies = torch.npu.Stream()
weight = torch.ones(1024, device="npu:0")
batch = torch.zeros(1024, device="npu:0")
source = torch.ones(1024).pin_memory()


def load():
    with torch.npu.stream(copies):
        batch.copy_(source, non_blocking=True)


def step():
    return batch * weight


def main():
    torch.npu.synchronize()
    load()
    step()


main()
