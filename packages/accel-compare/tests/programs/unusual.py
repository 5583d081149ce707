# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Legal programs that a recorder may break: each prints its name when it has ended."""

import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

PROGRAMS: list[Callable[[], object]] = []


@PROGRAMS.append
def sparse_gradients() -> None:
    nn.Embedding(10, 4, sparse=True)(torch.arange(3)).sum().backward()


@PROGRAMS.append
def lazy_parameters() -> None:
    nn.Sequential(nn.LazyLinear(3))(torch.ones(2, 5)).sum().backward()


@PROGRAMS.append
def nested_tensors() -> None:
    nn.Linear(4, 2)(torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)]))


@PROGRAMS.append
def conjugate_views() -> None:
    nn.Identity()(torch.ones(3, dtype=torch.complex64).conj())


@PROGRAMS.append
def vmap() -> None:
    torch.vmap(nn.Linear(4, 4))(torch.ones(3, 4))


@PROGRAMS.append
def default_device() -> None:
    torch.set_default_device("cpu")
    nn.Linear(3, 3)(torch.ones(2, 3))


@PROGRAMS.append
def inference_mode() -> None:
    with torch.inference_mode():
        nn.Linear(3, 3)(torch.ones(2, 3))


@PROGRAMS.append
def no_features() -> None:
    nn.Linear(0, 4)(torch.ones(2, 0)).sum().backward()


@PROGRAMS.append
def mask_of_the_least_double() -> None:
    nn.Identity()(torch.full((3,), torch.finfo(torch.float64).min, dtype=torch.float64))


@PROGRAMS.append
def modes_of_the_program() -> None:
    counter, layer = FlopCounterMode(display=False), nn.Linear(8, 8)
    with counter:
        layer(torch.ones(4, 8))
    counted = counter.get_total_flops()
    layer(torch.ones(4, 8))
    assert counter.get_total_flops() == counted


@PROGRAMS.append
def raising_module() -> None:
    class Raising(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError

    try:
        Raising()(torch.ones(1))
    except KeyError:
        nn.Linear(1, 1)(torch.ones(1))


for program in PROGRAMS:
    program()
    sys.stdout.write(f"{program.__name__}\n")
