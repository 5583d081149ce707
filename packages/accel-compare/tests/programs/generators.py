# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Draw from a generator of the device that is seeded twice, and whose state is set again."""

import torch
from torch import nn

from accel_core import get_accelerator

device = get_accelerator().device_name()
generator, show = torch.Generator(device), nn.Identity()


def draw() -> torch.Tensor:
    values = torch.rand(8, device=device, generator=generator)
    show(values)
    return values


drawn = []
for _ in range(2):
    generator.manual_seed(5)
    drawn.append([draw(), draw()])
assert all(map(torch.equal, *drawn))
state = generator.get_state()
third = draw()
draw()
generator.set_state(state)
assert torch.equal(draw(), third)
assert not torch.equal(third, drawn[0][0])
