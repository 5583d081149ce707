# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Sequence and tensor parallelism over all ranks; their losses and those of plain torch."""

import functools
import os
from typing import Any

import offload
import torch
from torch import nn

_BATCH, _LENGTH, _HEADS, _WIDTH, _LR = 2, 12, 12, 24, 0.5


def _attend(*parts: torch.Tensor) -> torch.Tensor:
    return nn.functional.scaled_dot_product_attention(*(part.transpose(1, 2) for part in parts)).transpose(
        1, 2
    )


class Block(nn.Module):
    """Attention and an MLP. attend: takes query, key and value of shape (batch, length, heads, width of a head)."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(_WIDTH, _WIDTH) for _ in range(4))
        self.up_proj, self.down_proj = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Linear(4 * _WIDTH, _WIDTH)
        self.attend: Any = _attend

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        parts = (layer(given) for layer in (self.q_proj, self.k_proj, self.v_proj))
        mixed = self.attend(*(part.view(*given.shape[:2], -1, _WIDTH // _HEADS) for part in parts))
        return given + self.down_proj(torch.tanh(self.up_proj(self.o_proj(mixed.flatten(2)))))


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block())


def _batches() -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(1)
    return [torch.randn(_BATCH, _LENGTH, _WIDTH, generator=source) for _ in range(3)]


def _loss(model: Any, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).square().mean()


def sequence(stage: int) -> list[float]:
    """The losses of a sequence of which each rank has a part: of all parts."""
    import deepspeed
    from deepspeed.sequence.layer import DistributedAttention

    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    model = _model()
    engine = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config=offload.sgd(stage, _LR),
        mesh_param=(1, ranks),
    )[0]
    for block in model:
        attention = DistributedAttention(_attend, engine.seq_parallel_group, 2, 1)
        block.attend = functools.partial(attention, batch_dim_idx=0)
    losses = []
    for batch in _batches():
        part = batch.chunk(ranks, 1)[rank]
        whole = torch.tensor(offload.engine_losses(engine, [part], _loss))
        deepspeed.comm.all_reduce(whole)
        losses.append(whole.item() / ranks)
    return losses


def tensor(stage: int) -> list[float]:
    """The losses of layers of which each rank has a part."""
    import deepspeed

    shards = [
        {"patterns": [r".*\.(q|k|v|up)_proj\.weight$"], "partition_type": "column"},
        {"patterns": [r".*\.(o|down)_proj\.weight$"], "partition_type": "row"},
    ]
    model = _model()
    parallel = {
        "autotp_size": int(os.environ["WORLD_SIZE"]),
        "partition_config": {"use_default_specs": False, "layer_specs": shards},
    }
    config = offload.sgd(stage, _LR, tensor_parallel=parallel)
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
    return offload.engine_losses(engine, _batches(), _loss)


def main(store: str, way: str) -> None:
    """Print [losses of plain torch, {stage: losses}]."""
    offload.init(store)
    # ZeRO 0 to 2 do not reduce the gradients of a sequence: docs/deepspeed-issues.md.
    train, stages = {"sequence": (sequence, (3,)), "tensor": (tensor, (0, 1, 2))}[way]
    plain = offload.torch_losses(_model(), _batches(), _loss, _LR)
    offload.report([plain, {f"ZeRO {stage}": train(stage) for stage in stages}])
