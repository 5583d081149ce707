# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The job of one rank: train every configuration in one process, because importing deepspeed takes seconds."""

from __future__ import annotations

import traceback
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from accel_testkit.engine import configurations, model
from accel_testkit.engine.configurations import STEPS, Configuration
from accel_testkit.suite import launch

Found = dict[str, list[Any]]
_HALF = STEPS // 2


@dataclass(frozen=True)
class Order:
    """The instructions of a test to all ranks.

    names:       the configurations to train.
    checkpoints: folder that outlives the processes.
    origin:      number of ranks whose checkpoints are gone on from; 0 for a run from the beginning.
    stock:       this is DeepSpeed's own CPU accelerator, the measure for others.
    """

    names: list[str]
    checkpoints: str
    origin: int = 0
    stock: bool = False

    def configurations(self) -> list[Configuration]:
        """Return the configurations by their names."""
        return [configuration for configuration in configurations.MATRIX if configuration.name in self.names]


def work(accelerator: Any, answer: dict[str, Any], folder: Path) -> None:
    """Put what each configuration found, by name, or the traceback of its failure, into the answer."""
    import deepspeed

    order = Order(**launch.order(folder))
    chosen = deepspeed.accelerator.get_accelerator()
    if order.stock:
        # It denies float16 where the processor has no instructions for it; PyTorch computes it all the same.
        chosen.is_fp16_supported = lambda: True
        # Compiles its op for collectives at the first start, also where nothing is trained.
        deepspeed.init_distributed(chosen.communication_backend_name())
    answer["accelerator"] = f"{type(chosen).__module__}.{type(chosen).__name__}"
    for configuration in order.configurations():
        try:
            answer[configuration.name] = train(configuration, order)
        except Exception:
            answer[configuration.name] = traceback.format_exc()[-3000:]
        # A configuration that hangs leaves what was found before it.
        launch.write(folder / f"{dist.get_rank()}.json", answer)


def train(configuration: Configuration, order: Order) -> Found:
    """Train on this rank's share of the batches; return what it finds."""
    place = Path(order.checkpoints, str(order.origin or dist.get_world_size()), configuration.name)
    found: Found = {"losses": [], "scales": [], "skipped": []}
    if order.origin:
        engine = _engine(configuration, _load_elsewhere(configuration, place))
        _load(engine, place)
        _steps(engine, configuration, range(_HALF, STEPS), found)
    elif configuration.resume or configuration.moves:
        engine = _engine(configuration)
        _steps(engine, configuration, range(_HALF), found)
        engine.save_checkpoint(str(place))
        if configuration.resume:
            engine.destroy()
            engine = _engine(configuration)
            _load(engine, place)
            _steps(engine, configuration, range(_HALF, STEPS), found)
    else:
        engine = _engine(configuration)
        _steps(engine, configuration, range(STEPS), found)
    engine.destroy()
    return found


def _engine(configuration: Configuration, more: dict[str, Any] | None = None) -> Any:
    import deepspeed

    module = model.make()
    config = {**configuration.deepspeed_config(dist.get_world_size(), model.BATCH), **(more or {})}
    return deepspeed.initialize(model=module, model_parameters=module.parameters(), config=config)[0]


def _load(engine: Any, place: Path) -> None:
    path, _ = engine.load_checkpoint(str(place))
    if path is None:
        raise RuntimeError(f"DeepSpeed loaded nothing from {place}")


def _load_elsewhere(configuration: Configuration, place: Path) -> dict[str, Any]:
    """Convert the checkpoint for any number of ranks; return the setting that loads it."""
    if configuration.stage == 0:
        return {}  # The optimizer's state is whole there.
    if dist.get_rank() == 0:
        from deepspeed.checkpoint import ds_to_universal

        tag = (place / "latest").read_text(encoding="utf-8").strip()
        one = {"num_extract_workers": 1, "num_merge_workers": 1}
        flags = {"keep_temp_folder": False, "strict": True, "inject_missing_state": True}
        folders = {"input_folder": str(place / tag), "output_folder": str(place / "universal")}
        ds_to_universal.main(Namespace(**folders, **one, **flags))
    dist.barrier()
    return {"checkpoint": {"load_universal": True}}


def _steps(engine: Any, configuration: Configuration, steps: range, found: Found) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for step in steps:
        values = []
        skipped = engine.skipped_steps
        found["scales"].append(float(getattr(engine.optimizer, "loss_scale", None) or 1.0))
        # Micro-batches first, ranks within them: every rank's share of a micro-batch has the same size.
        for part in model.batch(step).chunk(configuration.accumulate):
            loss = engine(part.chunk(ranks)[rank].to(engine.device))
            values.append(loss.item())
            engine.backward(loss)
            engine.step()
        found["losses"].append(sum(values) / len(values))
        found["skipped"].append(engine.skipped_steps > skipped)
