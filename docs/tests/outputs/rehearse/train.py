# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ten blocks, 5 billion parameters, trained by DeepSpeed with the configuration that the command names."""

import argparse

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator

WIDTH = 8192


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, hidden):
        return hidden + self.mlp(hidden)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(10))

    def forward(self, hidden):
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden.float().square().mean()


parser = argparse.ArgumentParser()
parser.add_argument("--deepspeed")
parser.add_argument("--local_rank")
options = parser.parse_args()
engine = deepspeed.initialize(model=Model(), config=options.deepspeed)[0]
batch = torch.ones(
    engine.train_micro_batch_size_per_gpu(),
    4096,
    WIDTH,
    dtype=torch.bfloat16,
    device=get_accelerator().device_name(),
)
for _ in range(3):
    for _ in range(engine.gradient_accumulation_steps()):
        engine.backward(engine(batch))
        engine.step()
