# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One rank's job: train every configuration in one process, since importing deepspeed costs seconds."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import torch.distributed as dist

from accel_testkit.engine import configurations, model
from accel_testkit.engine.configurations import STEPS, Configuration

#: Set by the test: `1` for the quick subset.
QUICK = "ACCEL_ENGINE_QUICK"


def work(accelerator: Any, answer: dict[str, Any], folder: Path) -> None:
    """The answer has the losses of each configuration by name, or the traceback of its failure."""
    import deepspeed

    answer["accelerator"] = type(deepspeed.accelerator.get_accelerator()).__name__
    answer["backend"] = dist.get_backend()
    for number, configuration in enumerate(configurations.chosen(os.environ.get(QUICK) == "1")):
        try:
            answer[configuration.name] = train(configuration, folder / f"checkpoint-{number}")
        except Exception:
            answer[configuration.name] = traceback.format_exc()[-3000:]


def train(configuration: Configuration, folder: Path) -> list[float]:
    """Losses of every step on this rank's share of the batches."""
    engine = _engine(configuration)
    if not configuration.resume:
        return _steps(engine, configuration, range(STEPS))
    first = _steps(engine, configuration, range(STEPS // 2))
    engine.save_checkpoint(str(folder))
    engine = _engine(configuration)
    engine.load_checkpoint(str(folder))
    return first + _steps(engine, configuration, range(STEPS // 2, STEPS))


def _engine(configuration: Configuration) -> Any:
    import deepspeed

    module = model.make()
    config = configuration.deepspeed_config(dist.get_world_size(), model.BATCH)
    return deepspeed.initialize(model=module, model_parameters=module.parameters(), config=config)[0]


def _steps(engine: Any, configuration: Configuration, steps: range) -> list[float]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    found = []
    for step in steps:
        values = []
        # Micro-batches first, ranks within them: every rank's share of a micro-batch has the same size.
        for part in model.batch(step).chunk(configuration.accumulate):
            loss = engine(part.chunk(ranks)[rank].to(engine.device))
            values.append(loss.item())
            engine.backward(loss)
            engine.step()
        found.append(sum(values) / len(values))
    return found
