# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Legal programs that a recorder may break: each prints its name when it has ended."""

import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def default_device() -> None:
    torch.set_default_device("cpu")
    nn.Linear(3, 3)(torch.ones(2, 3))


def modes_of_the_program() -> None:
    counter, layer = FlopCounterMode(display=False), nn.Linear(8, 8)
    with counter:
        layer(torch.ones(4, 8))
    counted = counter.get_total_flops()
    layer(torch.ones(4, 8))
    assert counter.get_total_flops() == counted


def raising_module() -> None:
    class Raising(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError

    try:
        Raising()(torch.ones(1))
    except KeyError:
        nn.Linear(1, 1)(torch.ones(1))


_NESTED = [torch.ones(2, 4), torch.ones(3, 4)]
_LEAST = torch.finfo(torch.float64).min
PROGRAMS: dict[str, Callable[[], object]] = {
    "sparse gradients": lambda: nn.Embedding(10, 4, sparse=True)(torch.arange(3)).sum().backward(),
    "lazy parameters": lambda: nn.Sequential(nn.LazyLinear(3))(torch.ones(2, 5)).sum().backward(),
    "nested tensors": lambda: nn.Linear(4, 2)(torch.nested.nested_tensor(_NESTED)),
    "conjugate views": lambda: nn.Identity()(torch.ones(3, dtype=torch.complex64).conj()),
    "vmap": lambda: torch.vmap(nn.Linear(4, 4))(torch.ones(3, 4)),
    "default device": default_device,
    "inference mode": torch.inference_mode()(lambda: nn.Linear(3, 3)(torch.ones(2, 3))),
    "no features": lambda: nn.Linear(0, 4)(torch.ones(2, 0)).sum().backward(),
    "mask of the least double": lambda: nn.Identity()(torch.full((3,), _LEAST, dtype=torch.float64)),
    "modes of the program": modes_of_the_program,
    "raising module": raising_module,
}
for name, program in PROGRAMS.items():
    program()
    sys.stdout.write(f"{name}\n")
