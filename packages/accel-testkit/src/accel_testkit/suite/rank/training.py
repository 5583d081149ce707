# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's engine on the model of the suite, once for each ZeRO stage and type."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from accel_testkit.suite import model


def work(accelerator: Any, answer: dict[str, Any], folder: Path) -> None:
    """Train; put the losses of each run, or the error's text, into the answer."""
    import deepspeed

    answer["accelerator"] = type(deepspeed.accelerator.get_accelerator()).__name__
    for stage in range(4):
        _train(answer, f"fp32 stage {stage}", {"zero_optimization": {"stage": stage}})
    if dist.get_world_size() > 1:
        return
    zero2 = {"zero_optimization": {"stage": 2}}
    _train(answer, "bf16 stage 2", {**zero2, "bf16": {"enabled": True}})
    half = model.STEPS // 2
    first = _steps(answer, _engine(zero2), range(half), save=folder / "checkpoint")
    engine = _engine(zero2)
    engine.load_checkpoint(str(folder / "checkpoint"))
    answer["fp32 stage 2 resumed"] = first + _steps(answer, engine, range(half, model.STEPS))


def _train(answer: dict[str, Any], name: str, config: dict[str, Any]) -> None:
    try:
        answer[name] = _steps(answer, _engine(config), range(model.STEPS))
    except Exception:
        answer[name] = traceback.format_exc()[-2000:]


def _engine(config: dict[str, Any]) -> Any:
    import deepspeed

    module = model.make()
    adam = {"lr": model.LEARNING_RATE, "weight_decay": 0.0, "torch_adam": True, "adam_w_mode": True}
    config = {
        "train_micro_batch_size_per_gpu": 8 // dist.get_world_size(),
        "gradient_clipping": model.CLIPPING,
        "optimizer": {"type": "AdamW", "params": adam},
        **config,
    }
    return deepspeed.initialize(model=module, model_parameters=module.parameters(), config=config)[0]


def _steps(answer: dict[str, Any], engine: Any, steps: range, save: Path | None = None) -> list[float]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    dtype = next(engine.module.parameters()).dtype
    losses = []
    for step in steps:
        inputs, targets = (part.chunk(ranks)[rank].to(engine.device) for part in model.batch(step))
        loss = model.loss(engine, inputs.to(dtype), targets)
        answer["device"] = torch.device(loss.device).type
        losses.append(loss.item())
        engine.backward(loss)
        engine.step()
    if save is not None:
        engine.save_checkpoint(str(save))
    return losses
