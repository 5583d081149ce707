# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Six steps of a small transformer with DeepSpeed: `train.py STAGE TYPE` prints its losses as JSON."""

import json
import sys

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator

WORDS, WIDTH, LENGTH, ROWS, STEPS = 64, 32, 16, 4, 6


class Model(torch.nn.Module):
    """Two layers over the embeddings of words; its result is the loss of the next word."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        layer = torch.nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=words.device).triu(1)
        found = self.head(self.layers(self.words(words[:, :-1]), mask=hidden))
        return torch.nn.functional.cross_entropy(found.float().flatten(0, 1), words[:, 1:].flatten())


def main(stage: str, kind: str) -> None:
    deepspeed.init_distributed()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = Model()
    batches = torch.randint(0, WORDS, (STEPS, ROWS, LENGTH + 1))
    config = {
        "train_batch_size": ROWS,
        "zero_optimization": {"stage": int(stage)},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "gradient_clipping": 1.0,
    }
    if kind != "fp32":
        config[kind] = {"enabled": True}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    losses = []
    for batch in batches:
        loss = engine(batch[rank * ROWS // ranks : (rank + 1) * ROWS // ranks].to(engine.device))
        engine.backward(loss)
        engine.step()
        mean = loss.detach() / ranks
        dist.all_reduce(mean)
        losses.append(mean.item())
    if rank == 0:
        found = {"device": get_accelerator().device_name(), "backend": dist.get_backend(), "losses": losses}
        sys.stdout.write("\n" + json.dumps(found) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
