# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing of a pipeline: layers whose inputs need no gradient, such as an embedding, get none."""

import deepspeed
import torch
from _engine import engine
from deepspeed.pipe import PipelineModule

deepspeed.init_distributed()
for interval in (0, 1):
    layers = [torch.nn.Embedding(4, 2), torch.nn.Linear(2, 2)]
    model = PipelineModule(
        layers, num_stages=1, loss_fn=torch.nn.functional.mse_loss, activation_checkpoint_interval=interval
    )
    trained = engine(lambda params: torch.optim.SGD(params, 0.5), model)
    try:
        trained.train_batch(iter([(torch.arange(4), torch.ones(4, 2))]))
        print(f"interval {interval}: no error")
    except AssertionError as error:
        print(f"interval {interval}:", str(error).partition(".")[0])
