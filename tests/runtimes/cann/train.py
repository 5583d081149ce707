# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Six steps of a small transformer: `train.py STAGE` prints its losses with DeepSpeed as JSON.

STAGE `plain`: without DeepSpeed, in float32 on the CPU.
"""

import json
import sys

import torch
import torch.distributed as dist

WORDS, WIDTH, LENGTH, ROWS, STEPS, RATE = 64, 32, 16, 4, 6, 1e-3


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


def start() -> tuple[Model, torch.Tensor]:
    """Return the model and the words of each step."""
    torch.manual_seed(1)
    return Model(), torch.randint(0, WORDS, (STEPS, ROWS, LENGTH + 1))


def plain() -> list[float]:
    model, batches = start()
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0), []
    for batch in batches:
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def with_deepspeed(stage: int) -> list[float]:
    import deepspeed

    deepspeed.init_distributed()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model, batches = start()
    config = {
        "train_batch_size": ROWS,
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": RATE}},
        "gradient_clipping": 1.0,
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    losses = []
    for batch in batches:
        loss = engine(batch[rank * ROWS // ranks : (rank + 1) * ROWS // ranks].to(engine.device))
        engine.backward(loss)
        engine.step()
        mean = loss.detach() / ranks
        dist.all_reduce(mean)
        losses.append(mean.item())
    dist.destroy_process_group()
    return losses


if __name__ == "__main__":
    losses = plain() if sys.argv[1] == "plain" else with_deepspeed(int(sys.argv[1]))
    sys.stdout.write("\n" + json.dumps({"losses": losses}) + "\n")
