# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The job of one rank: train with ZeRO++'s quantized weights, secondary partitions and quantized gradients.

Job `together.quantized` of accel_testkit.suite.launch. Order: {"runs": [[type, kind], …], "steps": steps of a run}.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from accel_testkit.suite import launch

#: A plain run of ZeRO 3; ZeRO++ of the weights alone; all of it.
PLAIN, WEIGHTS, QUANTIZED = "plain", "weights", "quantized"
#: DeepSpeed quantizes a matrix in as many groups as its larger dimension, which all devices must divide.
_WIDTH, _ROWS = 64, 256
#: Of what is to be learned; it leaves a loss of 1.
_NOISE = 1.0
#: At this rate the loss is still falling after STEPS, so that gradients which are too small show in it.
_RATE, STEPS = 2.0, 20
#: Batches that are not trained on, for the loss at the end.
_FIRST_HELD_OUT, _HELD_OUT = 900, 4


class Model(torch.nn.Module):
    """A layer of the transformer kind. Its gradients are dense: int4 makes the largest number of a group smaller."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(_WIDTH, 4 * _WIDTH), torch.nn.Linear(4 * _WIDTH, _WIDTH)
        self.out = torch.nn.Linear(_WIDTH, _WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (rows, width), and so the result."""
        y: torch.Tensor = self.out(x + self.down(functional.gelu(self.up(x))))
        return y


def work(accelerator: Any, answer: dict[str, Any], folder: Path) -> None:
    """Put the loss at the end of each run into the answer as `TYPE KIND`: of all ranks, on batches held out."""
    order = launch.order(folder)
    for dtype, kind in order["runs"]:
        answer[f"{dtype} {kind}"] = _trained(dtype, kind, order["steps"])


def _trained(dtype: str, kind: str, steps: int) -> float:
    import deepspeed

    teacher, module = _model(105), _model(5)
    config, groups = _config(dtype, kind), _groups(module, kind)
    engine = deepspeed.initialize(model=module, model_parameters=groups, config=config)[0]
    for step in range(steps):
        engine.backward(_loss(engine, teacher, step))
        engine.step()
    with torch.no_grad():
        held_out = [_loss(engine, teacher, _FIRST_HELD_OUT + i) for i in range(_HELD_OUT)]
    total = torch.stack(held_out).mean()
    dist.all_reduce(total)
    engine.destroy()
    return total.item() / dist.get_world_size()


def _model(seed: int) -> Model:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Model()


def _config(dtype: str, kind: str) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": 3, "stage3_param_persistence_threshold": 0}
    if kind != PLAIN:
        zero["zero_quantized_weights"] = True
    if kind == QUANTIZED:
        zero |= {"zero_hpz_partition_size": _ranks_of_a_node(), "zero_quantized_gradients": True}
    scaling = {"initial_scale_power": 8} if dtype == "fp16" else {}
    return {
        "train_micro_batch_size_per_gpu": _ROWS // dist.get_world_size(),
        # Plain gradient descent: Adam would hide gradients that are too small by a factor.
        "optimizer": {"type": "SGD", "params": {"lr": _RATE}},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": zero,
        dtype: {"enabled": True, **scaling},
    }


def _ranks_of_a_node() -> int:
    return int(os.environ["LOCAL_WORLD_SIZE"])


def _groups(module: Model, kind: str) -> list[dict[str, Any]]:
    """Return the parameters in groups, of which matrices get the same steps in all runs.

    DeepSpeed's quantized gradients, which are those of matrices, are larger by the number of devices of a node
    (docs/upstream.md).
    """
    by_kind = [[p for p in module.parameters() if (p.dim() > 1) == matrices] for matrices in (True, False)]
    matrices = _RATE if kind in (PLAIN, WEIGHTS) else _RATE / _ranks_of_a_node()
    return [{"params": by_kind[0], "lr": matrices}, {"params": by_kind[1], "lr": _RATE}]


def _loss(engine: Any, teacher: Model, step: int) -> torch.Tensor:
    """Return the mean squared error of this rank's rows of a batch, in float32."""
    generator = torch.Generator().manual_seed(step)
    x, noise = (torch.randn(_ROWS, _WIDTH, generator=generator) for _ in range(2))
    with torch.no_grad():
        wanted = 3 * teacher(x) + _NOISE * noise
    mine = [each.chunk(dist.get_world_size())[dist.get_rank()].to(engine.device) for each in (x, wanted)]
    dtype = next(engine.module.parameters()).dtype
    return functional.mse_loss(engine(mine[0].to(dtype)).float(), mine[1])
