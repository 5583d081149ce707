# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Random numbers of a device, drawn on the CPU: two runs draw the same ones, whatever their devices are.

A program on the CPU is not changed. On a device, each random operator draws from torch's CPU generator and copies
the result. Dropout and initial parameters are then those of the CPU. Saving and restoring the CPU's state, as
activation checkpointing does, works as before. Kernels that draw inside of another operation, such as a fused
attention with dropout, are not reached.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

#: Dispatch keys of devices; on those without a device here, nothing calls a kernel.
_KEYS = ("CUDA", "XPU", "HPU", "MPS", "PrivateUse1")
IN_PLACE = (
    "bernoulli_.float", "bernoulli_.Tensor", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_",
    "random_", "random_.from", "random_.to", "uniform_",
)  # fmt: skip
_NEW = ("bernoulli", "bernoulli.p", "multinomial", "poisson", "binomial", "normal.Tensor_Tensor")

_libraries: list[torch.library.Library] = []
#: States of CPU generators, by the seed that a device's generator has for it. All are kept, 5 KB a draw: generators
#: that do not draw for a while, and states that the program has saved, need theirs.
_states: dict[int, torch.Tensor] = {}
#: Below 2**31, which every runtime takes, and no seed that a person would choose.
_marks = itertools.count(1_234_819_651)


def on_cpu() -> None:
    """Register the kernels, also over those that a device's runtime has registered since the last call."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of each kernel that is replaced, which is what is meant
        for key in _KEYS:
            for name in IN_PLACE:
                library.impl(name, _filled(_overload(name)), key)
            for name in _NEW:
                library.impl(name, _copied(_overload(name)), key)
            library.impl("native_dropout", _dropout, key)
            library.impl("randperm.generator_out", _permutation, key)
    _libraries.append(library)  # a library that is collected takes its kernels with it


def _overload(name: str) -> Callable[..., torch.Tensor]:
    packet, _, overload = name.partition(".")
    found: Callable[..., torch.Tensor] = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return found


def _filled(operator: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def fill(tensor: torch.Tensor, *args: Any, generator: torch.Generator | None = None) -> torch.Tensor:
        drawn = torch.empty_like(tensor, device="cpu")
        with _cpu(generator) as own:
            operator(drawn, *map(_to_cpu, args), generator=own)
        return tensor.copy_(drawn)

    return fill


def _copied(operator: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def draw(tensor: torch.Tensor, *args: Any, generator: torch.Generator | None = None) -> torch.Tensor:
        with _cpu(generator) as own:
            return operator(tensor.cpu(), *map(_to_cpu, args), generator=own).to(tensor.device)

    return draw


def _dropout(tensor: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute native_dropout with the noise and the order of operations of a dropout on the CPU."""
    if train is False or tensor.numel() == 0:
        return tensor.clone(), torch.ones_like(tensor, dtype=torch.bool)
    noise = torch.empty_like(tensor, device="cpu").bernoulli_(1 - p)
    mask = noise.bool().to(tensor.device)
    scaled = noise.div_(1 - p) if p < 1 else noise
    return tensor * scaled.to(tensor.device), mask


def _permutation(n: int, *, generator: torch.Generator | None, out: torch.Tensor) -> torch.Tensor:
    with _cpu(generator) as own:
        drawn = torch.randperm(n, generator=own, dtype=out.dtype, device="cpu")
    return out.resize_(n).copy_(drawn)


def _to_cpu(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value


@contextmanager
def _cpu(generator: torch.Generator | None) -> Iterator[torch.Generator | None]:
    """Yield the CPU generator that stands for a device's: seeded as that one was last, and in the state of its draws.

    After a draw the device's generator gets a seed of ours, which stands for the state of the CPU's. A generator that
    the program seeds has another one. A state that the program has kept and sets has ours of that time.
    """
    if generator is None or generator.device.type == "cpu":
        yield generator
        return
    seed, drawn = generator.initial_seed(), torch.Generator("cpu")
    if seed in _states:
        drawn.set_state(_states[seed])
    else:
        drawn.manual_seed(seed)
    yield drawn
    mark = next(_marks)
    _states[mark] = drawn.get_state()
    generator.manual_seed(mark)
