# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What `accel rehearse` finds beside published figures: ZeRO's table, DeepSpeed's estimators, Megatron's formula."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accel_sim.rehearse import page
from accel_sim.rehearse.record import Rank, Rehearsal
from benchmarks import results

_TEXT = """\
Memory of a device in GB: what is published, and what a rehearsal counts.

- *ZeRO*: [arXiv:1910.02054](https://arxiv.org/abs/1910.02054), table 1, model states of 7.5 B parameters with
  mixed-precision Adam; rehearsed with a GPT-2 of 7.46 B. Parameters, gradients, optimizer states and fp32 copies of
  parameters count at the peak of the step; for stage 1, whose gradients are whole, at the peak of backward with its
  temporaries. The smaller model accounts for -0.6 %. This definition was chosen after a first run, which took each
  kind's highest value in any phase: on 64 ranks stage 1 then differed by -47 %, because its gradients are labelled
  temporaries in backward, and stage 3 by 173 %, because gathered parameters counted.
- *estimator*: `estimate_zero2_model_states_mem_needs` and `estimate_zero3_model_states_mem_needs` of the installed
  DeepSpeed for the same model; beside it stands the highest peak after init. That one holds buckets (1 GB) and, at
  stage 3, up to 10**9 gathered parameters (`stage3_max_live_parameters`, 2 GB), which the estimators do not count.
- *Megatron*: [arXiv:2205.05198](https://arxiv.org/abs/2205.05198), table 2, activations of one layer of the 22 B model
  without parallelism (hidden 6144, 64 heads, sequence 2048, batch 4); rehearsed as the difference of two depths.

The highest peak of a run is what has to fit, and the published figures leave it out.

    python -m benchmarks.rehearse"""

_HIDDEN, _LAYERS, _SEQUENCE = 4096, 36, 64
_STATES = ("parameters", "gradients", "optimizer states", "master parameters")
#: Stage and ranks: the table's value.
_PAPER = {
    (0, 64): 120.0,
    (1, 4): 52.5,
    (1, 64): 31.4,
    (2, 4): 41.3,
    (2, 64): 16.6,
    (3, 4): 30.0,
    (3, 64): 1.88,
}
#: Stage and offload of the estimators' options.
_ESTIMATED = ((2, "none"), (2, "optimizer"), (3, "none"), (3, "optimizer"), (3, "optimizer and parameters"))


#: Activation checkpointing of a Megatron layer, and its activations in units of sequence x batch x hidden.
_MEGATRON = {"none": 34 + 5 * 64 * 2048 / 6144, "attention": 34.0, "layer": 2.0}


def train(options: argparse.Namespace) -> None:
    """Train some steps: the program that is rehearsed."""
    import deepspeed
    import torch
    from deepspeed.accelerator import get_accelerator
    from transformers import GPT2Config, GPT2LMHeadModel

    deepspeed.init_distributed()
    zero: dict[str, Any] = {"stage": options.stage}
    if options.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu"}
    if options.offload == "optimizer and parameters":
        zero["offload_param"] = {"device": "cpu"}
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "fp16": {"enabled": True, "loss_scale": 1.0},
        "zero_optimization": zero,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-4}},
    }
    shape = GPT2Config(n_embd=_HIDDEN, n_layer=_LAYERS, n_head=32, n_positions=_SEQUENCE, use_cache=False)
    with deepspeed.zero.Init(config_dict_or_path=config, enabled=options.stage == 3):
        model = GPT2LMHeadModel(shape)
    engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
    for _ in range(3):
        tokens = torch.ones(1, _SEQUENCE, dtype=torch.long, device=get_accelerator().current_device_name())
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()


def train_megatron(options: argparse.Namespace) -> None:
    """Train layers as Megatron builds them, sequence first, in half precision."""
    import deepspeed
    import torch
    from deepspeed.accelerator import get_accelerator
    from torch import nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    sequence, batch, hidden, heads = 2048, 4, 6144, 64

    def attention(projected: torch.Tensor) -> torch.Tensor:
        parts = projected.view(sequence, batch * heads, 3 * hidden // heads).chunk(3, dim=-1)
        query, key, value = (part.transpose(0, 1) for part in parts)
        scores = torch.bmm(query, key.transpose(1, 2)).softmax(-1)
        mixed = torch.bmm(functional.dropout(scores, 0.1), value)
        return mixed.transpose(0, 1).reshape(sequence, batch, hidden)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
            self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            projected = self.qkv(self.norms[0](x))
            selective = options.offload == "attention"
            mixed = (
                checkpoint(attention, projected, use_reentrant=False) if selective else attention(projected)
            )
            x = x + functional.dropout(self.out(mixed), 0.1)
            wide = functional.gelu(self.up(self.norms[1](x)))
            return x + functional.dropout(self.down(wide), 0.1)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(options.stage))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False) if options.offload == "layer" else layer(x)
            return x.sum()

    deepspeed.init_distributed()
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "fp16": {"enabled": True, "loss_scale": 1.0},
        "optimizer": {"type": "Adam", "params": {"lr": 1e-4}},
    }
    model = Model()
    engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
    device = get_accelerator().current_device_name()
    for _ in range(3):
        x = torch.zeros(sequence, batch, hidden, dtype=torch.half, device=device, requires_grad=True)
        engine.backward(engine(x))
        engine.step()


def _rehearsed(*words: object, ranks: int = 1) -> Rank:
    """Return the first rank of a rehearsal on a device on which everything fits."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        command = [
            str(Path(sys.executable).with_name("accel")), "rehearse", "cuda", "--memory", "512GiB",
            "--ranks", str(ranks), "--rank", "first", "--json", str(record), "--",
            "-m", "benchmarks.rehearse", *map(str, words),
        ]  # fmt: skip
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        return Rehearsal.from_json(record.read_text(encoding="utf-8"), str(record)).ranks_rehearsed[0]


def _row(source: str, case: str, published: float, rehearsed: float, rank: Rank, unit: int) -> dict[str, Any]:
    peak = rank.peak
    return {
        "published in": source,
        "case": case,
        "published": published,
        "rehearsed": rehearsed / unit,
        "difference, %": 100 * (rehearsed / unit / published - 1),
        "highest peak": rank.requested / unit,
        "of phase": peak.name if peak else rank.outcome,
    }


def _rows() -> Iterator[dict[str, Any]]:
    for (stage, ranks), published in _PAPER.items():
        rank = _rehearsed("--train", "zero", "--stage", stage, ranks=ranks)
        yield _row("ZeRO", f"stage {stage}, {ranks} ranks", published, _states(rank, stage), rank, 10**9)
    for stage, offload in _ESTIMATED:
        rank = _rehearsed("--train", "zero", "--stage", stage, "--offload", offload, ranks=8)
        steady = max((phase.requested for phase in rank.phases if phase.name != "init"), default=0)
        case = f"stage {stage}, 8 ranks, offload {offload}"
        yield _row("estimator", case, _estimate(stage, offload) / 10**9, steady, rank, 10**9)
    for kept, units in _MEGATRON.items():
        few, many = (_rehearsed("--train", "megatron", "--stage", n, "--offload", kept) for n in (4, 8))
        activations = (_activations(many) - _activations(few)) / 4
        published = units * 2048 * 4 * 6144 / 10**9
        yield _row("Megatron", f"checkpointing: {kept}", published, activations, many, 10**9)


def _states(rank: Rank, stage: int) -> int:
    """Return the model states at the peak of the step; of stage 1 at that of backward, where gradients are whole."""
    kinds = next(
        phase.by_kind for phase in rank.phases if phase.name == ("backward" if stage == 1 else "step")
    )
    if stage == 1:
        return sum(count for kind, count in kinds.items() if kind not in ("activations", "buckets"))
    return sum(kinds.get(kind, 0) for kind in _STATES)


def _activations(rank: Rank) -> int:
    """Return what is held at the peak of the forward pass and is no model state."""
    return max(
        (
            phase.requested - sum(phase.by_kind.get(kind, 0) for kind in _STATES)
            for phase in rank.phases
            if phase.name == "forward"
        ),
        default=0,
    )


def _draw(file: Path) -> None:
    """Write a picture of one step, as the page of a rehearsal shows it."""
    drawn = page.timeline(_rehearsed("--train", "megatron", "--stage", 8), 80 << 30)
    style = "<svg xmlns='http://www.w3.org/2000/svg' style='background: #fff; color: #111; font-family: sans-serif'"
    file.write_text(drawn.replace("<svg", style, 1) + "\n", encoding="utf-8")


def _estimate(stage: int, offload: str) -> float:
    """Return the bytes of a device that DeepSpeed's estimator gives."""
    from deepspeed.runtime.zero import stage3, stage_1_and_2

    embedding = (50257 + _SEQUENCE) * _HIDDEN
    layer = 12 * _HIDDEN**2 + 13 * _HIDDEN
    total = embedding + _LAYERS * layer + 2 * _HIDDEN
    if stage == 2:
        _, bytes_ = stage_1_and_2.estimate_zero2_model_states_mem_needs(
            total,
            num_gpus_per_node=8,
            num_nodes=1,
            cpu_offload=offload != "none",
            additional_buffer_factor=1.5,
        )
    else:
        _, bytes_, _ = stage3.estimate_zero3_model_states_mem_needs(
            total, 50257 * _HIDDEN, num_gpus_per_node=8, num_nodes=1, cpu_offload=offload != "none",
            cpu_offload_params=offload == "optimizer and parameters", zero_init=True, additional_buffer_factor=1.5,
        )  # fmt: skip
    return float(bytes_)


def main() -> None:
    """Write the page of results, and the picture."""
    parser = results.parser(__doc__)
    parser.add_argument("--train", choices=("zero", "megatron"), help=argparse.SUPPRESS)
    parser.add_argument("--stage", type=int, default=0, help=argparse.SUPPRESS)  # megatron: layers
    parser.add_argument("--offload", default="none", help=argparse.SUPPRESS)  # megatron: what is checkpointed
    options = parser.parse_args()
    if options.train:
        {"zero": train, "megatron": train_megatron}[options.train](options)
        return
    _draw(options.out / "rehearse-step.svg")
    results.write(
        "rehearse-published", "Rehearsals beside published figures", _TEXT, list(_rows()), options.out
    )


if __name__ == "__main__":
    main()
