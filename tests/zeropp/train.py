# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One rank: train a small model at ZeRO-3 some ways, and let rank 0 print the loss at the end of each.

Arguments: the type (fp16, bf16), the ways. plain: nothing is quantized. quantized: ZeRO++ with 8-bit weights, secondary
partitions and 4-bit gradients. truncating: the same with a quantizer that rounds toward zero.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import deepspeed
import torch
import torch.distributed as dist

WORDS, WIDTH, LENGTH, BATCH, STEPS = 64, 64, 16, 32, 20
RATE, DEVICES = 0.5, 2
_ZEROPP = {
    "zero_quantized_weights": True,
    "zero_hpz_partition_size": 2,
    "zero_quantized_gradients": True,
}


class Block(torch.nn.Module):
    """Attention to earlier words, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.out(torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Model(torch.nn.Module):
    """Predicts the next word; returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(WORDS, WIDTH), torch.nn.Embedding(LENGTH, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.head = torch.nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words[:, :-1]) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return torch.nn.functional.cross_entropy(self.head(x).float().flatten(0, 1), words[:, 1:].flatten())


def batch(step: int) -> torch.Tensor:
    """Texts in which a word follows from the one before it, most of the time."""
    generator = torch.Generator().manual_seed(step)
    words = torch.randint(WORDS, (BATCH, LENGTH + 1), generator=generator)
    usual = torch.rand(words.shape, generator=generator) < 0.9
    for place in range(1, LENGTH + 1):
        follows = (3 * words[:, place - 1] + 7) % WORDS
        words[:, place] = torch.where(usual[:, place], follows, words[:, place])
    return words


def groups(model: Model, quantized: bool) -> list[dict[str, Any]]:
    """Return parameter groups with the same steps in both ways.

    DeepSpeed divides quantized gradients, which are those of matrices, by the number of nodes instead of devices.
    """
    matrices = [param for param in model.parameters() if param.dim() > 1]
    vectors = [param for param in model.parameters() if param.dim() == 1]
    return [
        {"params": matrices, "lr": RATE / DEVICES if quantized else RATE},
        {"params": vectors, "lr": RATE},
    ]


def train(dtype: str, quantized: bool) -> float:
    """Return the mean loss of the last three steps over all ranks."""
    torch.manual_seed(5)
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": BATCH // dist.get_world_size(),
        # Plain gradient descent: Adam would hide gradients that are too small by a factor.
        "optimizer": {"type": "SGD", "params": {"lr": RATE}},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": 3,
            "stage3_param_persistence_threshold": 0,
            **(_ZEROPP if quantized else {}),
        },
        dtype: {"enabled": True, **({"initial_scale_power": 8} if dtype == "fp16" else {})},
    }
    model = Model()
    engine = deepspeed.initialize(model=model, model_parameters=groups(model, quantized), config=config)[0]
    losses = []
    for step in range(STEPS):
        words = batch(step).chunk(dist.get_world_size())[dist.get_rank()].to(engine.device)
        loss = engine(words)
        engine.backward(loss)
        engine.step()
        losses.append(float(loss))
    last = torch.tensor(sum(losses[-3:]) / 3, device=engine.device)
    dist.all_reduce(last)
    engine.destroy()
    return float(last) / dist.get_world_size()


def main() -> None:
    dtype, *ways = sys.argv[1:]
    deepspeed.init_distributed()
    losses = {}
    for way in ways:
        if way == "truncating":
            # The only place where the quantizer rounds; the model uses no `round_`.
            torch.Tensor.round_ = torch.Tensor.trunc_  # type: ignore[method-assign]
        losses[way] = train(dtype, way != "plain")
    if dist.get_rank() == 0:
        name = deepspeed.accelerator.get_accelerator().__class__.__name__
        print(json.dumps({"accelerator": name, "losses": losses}))


if __name__ == "__main__":
    main()
