# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One rank of a small training run at some ZeRO stages: who computed, and each step's loss."""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

import processes
import torch
from torch import nn

_STEPS = 8
_CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
    "gradient_clipping": 1.0,
    "steps_per_print": 10**9,
}


def main(store: str, stages: Iterable[int]) -> None:
    """Train; `store` is the file through which the ranks find each other."""
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    accelerator = get_accelerator()
    if type(accelerator).__module__.startswith("deepspeed."):
        # Upstream would compile its shared-memory collectives here, half a minute for nothing that is compared.
        # By name: the attribute deepspeed.comm.torch is torch itself.
        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    deepspeed.init_distributed(
        dist_backend=accelerator.communication_backend_name(),
        auto_mpi_discovery=False,
        verbose=False,
        init_method=f"file://{store}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    losses = {stage: _train(deepspeed, stage) for stage in stages}
    report = {"by": type(accelerator).__module__, "losses": losses, "processes": processes.started}
    print(json.dumps(report), flush=True)
    # Of DeepSpeed on gloo: threads are left when the interpreter ends, with any accelerator, and torch now and then
    # aborts over them. How the process ends is not what is compared.
    os._exit(0)


def _train(deepspeed: Any, stage: int) -> list[str]:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    # A copy of its own: DeepSpeed 0.18 takes torch_adam out of the dict it is given.
    config = copy.deepcopy(_CONFIG) | {"zero_optimization": {"stage": stage}}
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    data = torch.Generator().manual_seed(100 + int(os.environ["RANK"]))
    losses = []
    for _ in range(_STEPS):
        inputs = torch.randn(4, 16, generator=data)
        targets = torch.randint(4, (4,), generator=data)
        loss = nn.functional.cross_entropy(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item().hex())
    engine.destroy()
    return losses
