# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stock DeepSpeed on whatever accelerator is there: `torchrun --nproc-per-node 2 train.py`. No device is named here."""

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator

CONFIG = {
    "train_micro_batch_size_per_gpu": 64,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.0}},
    "zero_optimization": {"stage": 2},
}

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
numbers = torch.Generator().manual_seed(torch.distributed.get_rank())
for step in range(60):
    x = torch.randn(64, 8, generator=numbers).to(engine.device)
    loss = (engine(x) - x.sum(dim=1, keepdim=True)).square().mean()
    engine.backward(loss)
    engine.step()
    if step % 20 in (0, 19) and torch.distributed.get_rank() == 0:
        print(
            f"step {step:2}  loss {loss.item():.3f}  on {get_accelerator().current_device_name()}", flush=True
        )
torch.distributed.destroy_process_group()
