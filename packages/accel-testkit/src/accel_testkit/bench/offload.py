# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ZeRO-Offload's host path: stock DeepSpeed against the replaced methods, on our kernels in both cases.

The methods are replaced and put back in turn, one iteration each, in one process on the CPU accelerator.
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from accel_core.api import get_accelerator
from accel_ops.offload import speedups
from accel_testkit.suite import launch
from accel_testkit.timing import turns

WIDTH = 4096
_MILLIONS, _ROUNDS = 34, 7


def measure(build: bool, disk: Path) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yield (what, size, seconds by contender).

    build: compile DeepSpeed's own op where it is not. disk: a folder on the disk to measure.
    """
    for stage in (2, 3):
        runs = timed(stage, "bf16", _MILLIONS, _ROUNDS)
        found = {name: statistics.median(map(sum, pairs)) for name, pairs in runs.items()}
        yield f"ZeRO-{stage} offload: backward and step", f"{_MILLIONS} M bf16", found


def engine(stage: int, dtype: str, millions: int) -> Any:
    """Return DeepSpeed's engine with an offloaded optimizer, on one rank."""
    import deepspeed

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    launch.alone(get_accelerator())
    layers = max(1, round(millions * 1e6 / WIDTH**2))
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.01}},
        "zero_optimization": {"stage": stage, "offload_optimizer": {"device": "cpu"}},
    }
    if dtype == "bf16":
        config["bf16"] = {"enabled": True}
    return deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())[0]


def batch(dtype: str) -> torch.Tensor:
    """Return the input of an iteration."""
    return torch.randn(1, WIDTH, dtype=torch.bfloat16 if dtype == "bf16" else torch.float32)


def iteration(made: Any, inputs: torch.Tensor) -> tuple[float, float]:
    """Return the seconds of backward and of step."""
    loss = made(inputs).float().pow(2).mean()
    begin = time.perf_counter()
    made.backward(loss)
    between = time.perf_counter()
    made.step()
    return between - begin, time.perf_counter() - between


def methods(replaced: bool) -> None:
    """Replace DeepSpeed's methods, or put them back."""
    for name in speedups.MODULES:
        speedups.restore(sys.modules[name])
        if replaced:
            speedups.apply(sys.modules[name])


def timed(stage: int, dtype: str, millions: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return the seconds of backward and of step in each round, with DeepSpeed's methods and with ours."""
    made, inputs = engine(stage, dtype, millions), batch(dtype)

    def one(replaced: bool) -> tuple[float, float]:
        methods(replaced)
        return iteration(made, inputs)

    # The first two rounds allocate.
    return turns({"DeepSpeed": partial(one, False), "ours": partial(one, True)}, rounds, warm_up=2)
