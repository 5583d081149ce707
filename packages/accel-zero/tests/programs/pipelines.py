# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pipelines whose stages hand on tensors of several dtypes and sizes; their losses and those of plain torch."""

import os
from typing import Any

import offload
import torch
from torch import nn

_LAYERS, _WIDTH, _CLIP = 8, 6, 0.5
Rows = list[list[int]]


class Layer(nn.Module):
    """Hands on activations, a mask, integers, a scalar and a column; the first layer adds the last four."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index, self.linear = index, nn.Linear(_WIDTH, _WIDTH)

    def forward(self, given: Any) -> Any:
        if self.index == 0:
            first, rows = self.linear(given), torch.arange(given.shape[0], device=given.device)
            # DeepSpeed sends a gradient back for each float tensor, so that each needs one.
            given = (given, rows % 3 != 1, torch.full_like(rows, 3), first.mean(), first[:, :1])
        values, mask, number, scalar, column = given
        update = torch.tanh(self.linear(values)) * number[:, None] / 3 * mask[:, None]
        values = values + update + scalar * column
        if self.index == _LAYERS - 1:
            return values
        return (values, ~mask, number, scalar.cos(), column * 0.9)


def layers(embedding: bool) -> list[nn.Module]:
    torch.manual_seed(0)
    made: list[nn.Module] = [Layer(index) for index in range(_LAYERS)]
    return [nn.EmbeddingBag(5, _WIDTH), *made] if embedding else made


def batches(rows: list[int], embedding: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Inputs and targets. rows: of each micro-batch."""
    source = torch.Generator().manual_seed(1)
    given = (
        torch.randint(0, 5, (count, 4), generator=source)
        if embedding
        else torch.randn(count, _WIDTH, generator=source)
        for count in rows
    )
    return [(inputs, torch.randn(len(inputs), _WIDTH, generator=source)) for inputs in given]


def plain(rows: Rows, embedding: bool) -> list[float]:
    """The losses of one process."""

    def loss(model: nn.Module, step: list[int]) -> torch.Tensor:
        each = [nn.functional.mse_loss(model(x), y) / len(step) for x, y in batches(step, embedding)]
        return torch.stack(each).sum()

    return offload.torch_losses(nn.Sequential(*layers(embedding)), rows, loss, 0.1, _CLIP)


def pipeline(rows: Rows, kind: str = "", **options: Any) -> list[float]:
    """The losses of a pipeline over all ranks."""
    import deepspeed
    from deepspeed.pipe import PipelineModule

    cls: Any = PipelineModule
    if kind == "dual":
        from deepspeed.runtime.pipe.dualpipev import DualPipeVModule as cls  # type: ignore[no-redef]
    embedding = kind == "embedding"
    module = cls(
        layers(embedding), num_stages=int(os.environ["WORLD_SIZE"]), loss_fn=nn.functional.mse_loss,
        dynamic_shape=kind == "dynamic", **{"partition_method": "uniform", **options},
    )  # fmt: skip
    config = {
        "train_micro_batch_size_per_gpu": rows[0][0],
        "gradient_accumulation_steps": len(rows[0]),
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "gradient_clipping": _CLIP,
    }
    engine = deepspeed.initialize(model=module, model_parameters=module.parameters(), config=config)[0]
    losses = []
    for index, step in enumerate(rows):
        if kind == "reset" and index:
            engine.reset_activation_shape()
        losses.append(float(engine.train_batch(iter(batches(step, embedding)))))
    return losses


_EVEN: Rows = [[4] * 8] * 3
CASES: dict[str, tuple[Rows, dict[str, Any]]] = {
    "plain": (_EVEN, {}),
    "dynamic shapes": ([[4, 7, 2, 4, 1, 5, 4, 3]] * 3, {"kind": "dynamic"}),
    "reset shapes": ([[4] * 8, [2] * 8, [7] * 8], {"kind": "reset"}),
    "checkpoints": (_EVEN, {"activation_checkpoint_interval": 1}),
    "checkpointed embedding": (_EVEN, {"kind": "embedding", "activation_checkpoint_interval": 2}),
    "seeds": (_EVEN, {"seed_layers": True, "partition_method": "parameters"}),
    "DualPipeV": (_EVEN, {"kind": "dual"}),
}


def main(store: str, names: list[str]) -> None:
    """Print [losses, those of plain torch] of each case."""
    offload.init(store)
    found = {}
    for name in names:
        rows, options = CASES[name]
        found[name] = [pipeline(rows, **options), plain(rows, options.get("kind") == "embedding")]
    offload.report(found)
