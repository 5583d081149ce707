# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The training loop and the validation loss, over an engine that DeepSpeed has made."""

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
from byte_lm.batches import TrainingWindows, stack
from byte_lm.checkpoint import State
from byte_lm.progress import EVALUATIONS, TrainingProgress
from byte_lm.schedule import Schedule, rate_factor

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
