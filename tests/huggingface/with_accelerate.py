# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Train a small model with accelerate's DeepSpeed plugin, or plainly, and print the losses.

python tests/huggingface/with_accelerate.py --stage 2    # or under torchrun; --stage -1 trains in plain PyTorch
"""

import argparse
import json
import os

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--stage", type=int, required=True)
stage = parser.parse_args().stage

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
numbers = torch.randn(64, 16, generator=torch.Generator().manual_seed(2))
data = torch.utils.data.TensorDataset(numbers, numbers.sum(dim=1, keepdim=True))
answer: dict[str, object] = {"device": "cpu"}
if stage < 0:
    loader = torch.utils.data.DataLoader(data, batch_size=8)
else:
    from accelerate import Accelerator, DeepSpeedPlugin

    size = 8 // int(os.environ.get("WORLD_SIZE", "1"))
    config = {
        "train_micro_batch_size_per_gpu": size,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        # Without it DeepSpeed 0.19.8 clips at 1.
        "gradient_clipping": 1e9,
    }
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config))
    loader = torch.utils.data.DataLoader(data, batch_size=size)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    answer = {
        "device": accelerator.device.type,
        "engine": type(model).__name__,
        "ranks": accelerator.num_processes,
        "stage": model.zero_optimization_stage(),
    }

losses = []
for x, y in loader:
    loss = (model(x) - y).square().mean()
    if stage < 0:
        loss.backward()
        losses.append(loss.item())
    else:
        accelerator.backward(loss)
        losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
    optimizer.step()
    optimizer.zero_grad()
if stage < 0 or accelerator.is_main_process:
    print(json.dumps({"losses": losses, **answer}), flush=True)
if torch.distributed.is_available() and torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
