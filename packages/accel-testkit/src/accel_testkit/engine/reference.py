# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The same training in plain PyTorch on the CPU: float32 masters, torch's GradScaler, clipped gradients, AdamW."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import cache

import torch

from accel_testkit.engine import model
from accel_testkit.engine.configurations import (
    CLIPPING,
    LEARNING_RATE,
    STEPS,
    WEIGHT_DECAY,
    Configuration,
    Scaling,
)
from accel_testkit.engine.rank import Found

_UNSCALED = Scaling(0, dynamic=False)
_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: In what DeepSpeed sums up micro-batches: in float16 the sum overflows where its parts do not.
_SUMS = {torch.float32: torch.float32, torch.bfloat16: torch.float32, torch.float16: torch.float16}


def of(configuration: Configuration, ranks: int) -> Found:
    """Return `losses`, `scales` and `skipped` (whether the weights did not change) of every step.

    Stages, offload and checkpoints make no difference to it. Ranks only do because each rounds its own share.
    """
    c = configuration
    return _train(c.dtype, c.scaling if c.dtype == "fp16" else _UNSCALED, c.accumulate, c.warms_up, ranks)


@cache
def _train(dtype: str, scaling: Scaling, accumulate: int, warms_up: bool, ranks: int) -> Found:
    with _one_thread():
        module = model.make().to(_TYPES[dtype])
        masters = [parameter.detach().float().requires_grad_() for parameter in model.make().parameters()]
        optimizer = torch.optim.AdamW(masters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        if warms_up:
            _set_gradients(masters, [torch.zeros_like(master) for master in masters])
            optimizer.step()
            _copy(masters, module)
        scaler = _scaler(scaling)
        found: Found = {"losses": [], "scales": [], "skipped": []}
        for step in range(STEPS):
            parts = model.batch(step).chunk(accumulate)
            losses, gradients = _gradients(module, parts, ranks, scaler)
            found["losses"].append(sum(losses) / len(losses))
            found["scales"].append(scaler.get_scale())
            found["skipped"].append(not _step(optimizer, masters, gradients, scaler))
            _copy(masters, module)
    return found


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Limit torch to one thread: the model is tiny, and the ranks need the other cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _step(
    optimizer: torch.optim.Optimizer,
    masters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    scaler: torch.amp.GradScaler,
) -> bool:
    """Unscale, clip and take the step; return whether the weights have changed."""
    _set_gradients(masters, gradients)
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(masters, CLIPPING)
    before = [master.detach().clone() for master in masters]
    scaler.step(optimizer)
    scaler.update()
    return not all(torch.equal(old, new) for old, new in zip(before, masters, strict=True))


def _scaler(scaling: Scaling) -> torch.amp.GradScaler:
    # DeepSpeed counts the good steps of its window from the second one.
    interval = scaling.window + 1 if scaling.dynamic else STEPS + 1
    return torch.amp.GradScaler("cpu", init_scale=2.0**scaling.power, growth_interval=interval)


def _gradients(
    module: torch.nn.Module, parts: Sequence[torch.Tensor], ranks: int, scaler: torch.amp.GradScaler
) -> tuple[list[float], list[torch.Tensor]]:
    """Return each rank's loss of each micro-batch; accumulate scaled gradients, averaged over ranks and then summed."""
    sums = [torch.zeros_like(parameter, dtype=_SUMS[parameter.dtype]) for parameter in module.parameters()]
    losses = []
    for part in parts:
        means = [torch.zeros_like(total, dtype=torch.float32) for total in sums]
        for mine in part.chunk(ranks):
            module.zero_grad()
            loss = module(mine)
            losses.append(loss.item())
            scaler.scale(loss / len(parts)).backward()
            for mean, parameter in zip(means, module.parameters(), strict=True):
                assert parameter.grad is not None
                mean += parameter.grad / ranks
        for total, mean in zip(sums, means, strict=True):
            total += mean
    return losses, [total.float() for total in sums]


def _set_gradients(masters: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
    for master, gradient in zip(masters, gradients, strict=True):
        master.grad = gradient


def _copy(masters: list[torch.Tensor], module: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter, master in zip(module.parameters(), masters, strict=True):
            parameter.copy_(master)
