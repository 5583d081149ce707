# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Batches, learning rate, and the training loop with its validation, over an engine that DeepSpeed has made."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from deepspeed import comm
from torch import Tensor

from byte_lm import ranks
from byte_lm.checkpoint import State
from byte_lm.progress import EVALUATIONS, TrainingProgress


class TrainingWindows:
    """Every window of the text once an epoch, shuffled; no state, so a step number is a position in the data."""

    def __init__(self, text: bytes, context: int, seed: int) -> None:
        self.text, self.context, self.seed = as_tensor(text), context, seed
        self.count = (len(text) - 1) // context
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def batch(self, first: int, size: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets, each (size, context) of int64: windows number `first` and on since the start."""
        return stack([self._window(number) for number in range(first, first + size)])

    def _window(self, number: int) -> Tensor:
        epoch, place = divmod(number, self.count)
        if self._order[0] != epoch:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            self._order = epoch, torch.randperm(self.count, generator=generator)
        start = int(self._order[1][place]) * self.context
        return self.text[start : start + self.context + 1]


def validation_windows(text: bytes, context: int, most: int, ranks: int) -> list[Tensor]:
    """At most `most` windows of context + 1 bytes, evenly spread over the text, as many for each rank."""
    tensor, count = as_tensor(text), (len(text) - 1) // context
    used = min(count, most) // ranks * ranks
    starts = [i * count // used * context for i in range(used)]
    return [tensor[start : start + context + 1] for start in starts]


def stack(windows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Inputs and targets of the windows: targets are the inputs one byte later."""
    batch = torch.stack(windows).long()
    return batch[:, :-1], batch[:, 1:]


def as_tensor(text: bytes) -> Tensor:
    """The bytes as one uint8 tensor that owns its memory."""
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


WARMUP = 0.05
LAST_RATE = 0.05
SETTLED = 10  # steps after which the pace can be judged


@dataclass(frozen=True)
class Schedule:
    """A run of `steps`, begun or resumed at step `first`, that has `seconds` for what is left (None: no limit)."""

    steps: int
    first: int = 0
    seconds: float | None = None

    def progress(self, step: int, elapsed: float) -> float:
        """Share of the run that is behind, 0 to 1; on a machine too slow for all steps the clock decides."""
        counted = step / self.steps
        if self.seconds is None or step - self.first < SETTLED:
            return counted
        start = self.first / self.steps
        return min(max(counted, start + (1 - start) * elapsed / self.seconds), 1.0)


def rate_factor(progress: float) -> float:
    """Learning rate as a share of its peak: a linear warm-up, then a cosine down to LAST_RATE."""
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return min(progress / WARMUP, 1.0) * (LAST_RATE + (1 - LAST_RATE) * cosine)


EVALUATION_BATCH = 16


@dataclass
class Trainer:
    """One run's training: `engine` and `state` change with every step."""

    engine: Any
    state: State
    windows: TrainingWindows
    validation: list[Tensor]
    schedule: Schedule
    save: Callable[[], Path]
    save_every: int = 0

    def __post_init__(self) -> None:
        # Read before a checkpoint is loaded, which brings the rate of the moment it was written.
        self.peak_rates = [group["lr"] for group in self.engine.optimizer.param_groups]

    def run(self, view: TrainingProgress) -> float:
        """Train to the end of the schedule, evaluating EVALUATIONS times evenly; returns the seconds it took."""
        started, elapsed, first = time.monotonic(), 0.0, self.state.windows
        progress = self.schedule.progress(self.state.step, elapsed)
        while progress < 1:
            self._set_rate(self.schedule.progress(self.state.step + 1, elapsed))
            loss, elapsed = mean_over_ranks(self.engine, self._step(), time.monotonic() - started)
            self.state.train_loss.append(loss)
            before, progress = progress, self.schedule.progress(self.state.step, elapsed)
            tokens = (self.state.windows - first) * self.windows.context
            view.update(progress, self.state.step, loss, tokens / elapsed)
            if int(progress * EVALUATIONS) > int(before * EVALUATIONS):
                self._evaluate(view)
            if self.save_every and self.state.step % self.save_every == 0 and progress < 1:
                self.save()
        return elapsed

    def _step(self) -> float:
        """One optimizer step; returns this rank's mean loss in bits per byte."""
        size = self.engine.train_micro_batch_size_per_gpu()
        total = 0.0
        for _ in range(self.engine.gradient_accumulation_steps()):
            inputs, targets = self.windows.batch(self.state.windows + ranks.rank() * size, size)
            loss = self.engine(inputs.to(self.engine.device), targets.to(self.engine.device))
            self.engine.backward(loss)
            with torch.no_grad():  # DeepSpeed 0.18 forgets it, and torch 2.13 then refuses stages 1 and 2
                self.engine.step()
            self.state.windows += size * ranks.count()
            total += loss.item()
        self.state.step += 1
        return in_bits(total / self.engine.gradient_accumulation_steps())

    def _set_rate(self, progress: float) -> None:
        if self.engine.lr_scheduler is not None:  # the configuration brought its own
            return
        for group, peak in zip(self.engine.optimizer.param_groups, self.peak_rates, strict=True):
            group["lr"] = peak * rate_factor(progress)

    @torch.no_grad()
    def _evaluate(self, view: TrainingProgress) -> None:
        mine = self.validation[ranks.rank() :: ranks.count()]
        self.engine.eval()
        total, started = 0.0, time.monotonic()
        for start in range(0, len(mine), EVALUATION_BATCH):
            batch = mine[start : start + EVALUATION_BATCH]
            inputs, targets = stack(batch)
            loss = self.engine(inputs.to(self.engine.device), targets.to(self.engine.device))
            total += loss.item() * len(batch)
            view.validating((start + len(batch)) / len(mine))
        self.engine.train()
        (loss,) = mean_over_ranks(self.engine, in_bits(total / len(mine)))
        self.state.validation_loss.append((self.state.step, loss))
        view.validation_ended(time.monotonic() - started)
        view.say(f"step {self.state.step}: validation loss {loss:.3f} bits/byte")


def mean_over_ranks(engine: Any, *values: float) -> list[float]:
    """The same figures on every rank; ranks that disagree about the time would wait for each other forever."""
    shared = torch.tensor(values, device=engine.device)
    comm.all_reduce(shared)
    return (shared / ranks.count()).tolist()


def in_bits(nats: float) -> float:
    return nats / math.log(2)
