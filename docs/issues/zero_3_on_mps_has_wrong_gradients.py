# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A reduce-scatter into a part of its input is lost where DeepSpeed copies tensors to the host, as on mps."""

import importlib

import torch

backend = importlib.import_module("deepspeed.comm.torch")


class OfDevice(torch.Tensor):
    """Stands for a tensor of mps: its copy on the host has memory of its own."""

    def to(self, *_):
        return torch.tensor(self.tolist())


backend._needs_cpu_staging = lambda tensor: isinstance(tensor, OfDevice)


@backend.stage_on_cpu
def reduce_scatter(self, output, gradients):
    """Return the result of rank 0 of two, if the other one has the same gradients."""
    output.copy_(2 * gradients[: output.numel()])


gradients = torch.tensor([1.0, 2.0, 3.0, 4.0]).as_subclass(OfDevice)
reduce_scatter(None, gradients[:2], gradients)
print("expected: [2.0, 4.0] - reduced:", gradients[:2].tolist())
