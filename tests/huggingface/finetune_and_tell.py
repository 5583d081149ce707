# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Runs finetune.py as it is, then says where it ran: one JSON line of rank 0."""

import json

import finetune
import torch

trainer = finetune.train()
engine, arguments = trainer.model_wrapped, trainer.args
answer = {
    "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
    "device": next(engine.parameters()).device.type,
    "engine": type(engine).__name__,
    "ranks": arguments.world_size,
}
if arguments.deepspeed:
    from deepspeed.accelerator import get_accelerator

    answer["stage"] = engine.zero_optimization_stage()
    answer["accelerator"] = type(get_accelerator()).__name__
    answer["package"] = type(get_accelerator()).__module__.partition(".")[0]
    answer["collectives"] = torch.distributed.get_backend()
if arguments.process_index == 0:
    print(json.dumps(answer), flush=True)
