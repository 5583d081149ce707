# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A project that trains with DeepSpeed, as on hardware: `get_accelerator()` chooses the device."""

from __future__ import annotations

import os

import deepspeed
import pytest
import torch
from deepspeed.accelerator import get_accelerator

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
    "bf16": {"enabled": True},
}


@pytest.fixture(scope="module", autouse=True)
def one_rank():
    variables = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }
    os.environ.update(variables)
    yield
    if torch.distributed.is_initialized():  # not where the test was skipped
        torch.distributed.destroy_process_group()
    for name in variables:
        del os.environ[name]


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_engine_learns(stage, simulated_device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    config = {**CONFIG, "zero_optimization": {"stage": stage}}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    assert get_accelerator().device_name() == simulated_device.type == torch.device(engine.device).type
    rows = torch.randn(4, 8, generator=torch.Generator().manual_seed(1)).to(engine.device, torch.bfloat16)
    losses = []
    for _ in range(10):
        loss = engine(rows).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    engine.destroy()
    assert losses[-1] < losses[0]
