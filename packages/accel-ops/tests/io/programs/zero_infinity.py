# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Trains with stock DeepSpeed at stage 3, with parameters and optimizer states on disk as the arguments say."""

import json
import logging
import os
from typing import Any

import torch

WIDTH, LAYERS, STEPS = 768, 2, 4


class Model(torch.nn.Module):
    """Square layers, each large enough to be swapped: more than 1 MiB."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            values = torch.relu(layer(values)) + values
        return values.float().pow(2).mean()


def config(folder: str, zero: dict[str, Any]) -> dict[str, Any]:
    """DeepSpeed's configuration."""
    for section in ("offload_param", "offload_optimizer"):
        if zero.get(section, {}).get("device") == "nvme":
            zero[section]["nvme_path"] = folder
    size = WIDTH * WIDTH
    return {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3}},
        "bf16": {"enabled": True},
        "zero_optimization": {
            "stage": 3,
            "sub_group_size": 2 * size,
            "stage3_param_persistence_threshold": 0,
            "stage3_prefetch_bucket_size": size,
            **zero,
        },
        "aio": {
            "block_size": 262144,
            "queue_depth": 8,
            "intra_op_parallelism": 2,
            "single_submit": False,
            "overlap_events": True,
        },
        "steps_per_print": 10**9,
    }


def main(folder: str, zero: dict[str, Any]) -> None:
    """Train, and print the losses as JSON.

    zero: is laid over `zero_optimization`; "nvme_path" is added where the device is nvme.
    """
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    made = config(folder, zero)
    deepspeed.init_distributed(
        dist_backend=get_accelerator().communication_backend_name(),
        auto_mpi_discovery=False,
        verbose=False,
        init_method=f"file://{folder}/store",
        rank=0,
        world_size=1,
    )
    with deepspeed.zero.Init(config_dict_or_path=made, dtype=torch.bfloat16):
        model = Model()
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=made
    )
    losses = []
    for step in range(STEPS):
        values = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(step)).to(torch.bfloat16)
        loss = engine(values.to(engine.device))
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.detach()))
    swapper = getattr(optimizer, "optimizer_swapper", None)
    handle = getattr(swapper, "aio_handle", None) or getattr(swapper, "write_aio_handle", None)
    report = {"losses": losses, "handle": type(handle).__module__, "files": _files(folder)}
    print(json.dumps(report), flush=True)
    os._exit(0)  # torch now and then aborts over threads of gloo


def _files(folder: str) -> int:
    return sum(name.endswith(".swp") for _, _, names in os.walk(folder) for name in names)
