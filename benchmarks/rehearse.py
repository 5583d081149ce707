# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What `accel rehearse` finds beside published figures: the table of the ZeRO paper, and DeepSpeed's estimators."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accel_sim.rehearse.record import Rehearsal
from benchmarks import results

_TEXT = """\
The model states of a GPT-2 of 7.5 B parameters per device, in GB: what is published, and what a rehearsal counts. The
columns on the right are what the published figures leave out: the highest peak of all phases, and the phase it is in.
Parameters, gradients, optimizer states and fp32 copies of parameters each count with their highest value in any phase.

- *ZeRO*: [Rajbhandari et al., arXiv:1910.02054](https://arxiv.org/abs/1910.02054), table 1, for 7.5 B parameters and
  mixed-precision Adam.
- *estimator*: `estimate_zero2_model_states_mem_needs` and `estimate_zero3_model_states_mem_needs` of the installed
  DeepSpeed, for this model on 8 devices. They add a margin for buffers on the host. Their GB are GiB.

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


def _rehearsed(stage: int, ranks: int, offload: str = "none") -> Rehearsal:
    """Return the rehearsal of one rank, on a device on which everything fits."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        command = [
            str(Path(sys.executable).with_name("accel")), "rehearse", "cuda", "--memory", "256GiB", "--ranks", str(ranks),
            "--rank", "first", "--json", str(record),
            "--", __file__, "--train", "--stage", str(stage), "--offload", offload,
        ]  # fmt: skip
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        return Rehearsal.from_json(record.read_text(encoding="utf-8"), str(record))


def _row(source: str, stage: int, ranks: int, offload: str, published: float, unit: int) -> dict[str, Any]:
    rehearsal = _rehearsed(stage, ranks, offload)
    rank = rehearsal.ranks_rehearsed[0]
    states = sum(max((phase.by_kind.get(kind, 0) for phase in rank.phases), default=0) for kind in _STATES)
    peak = rank.peak
    return {
        "published in": source,
        "ZeRO": stage,
        "offload": offload,
        "ranks": ranks,
        "published, GB": published,
        "model states, GB": states / unit,
        "difference, %": 100 * (states / unit / published - 1),
        "highest peak, GB": rank.requested / unit,
        "in": peak.name if peak else rank.outcome,
        "seconds": rehearsal.seconds,
    }


def _rows() -> Iterator[dict[str, Any]]:
    for (stage, ranks), published in _PAPER.items():
        yield _row("ZeRO", stage, ranks, "none", published, 10**9)
    for stage, offload in _ESTIMATED:
        yield _row("estimator", stage, 8, offload, _estimate(stage, offload), 2**30)


def _estimate(stage: int, offload: str) -> float:
    """Return the device memory that DeepSpeed's estimator gives, in GiB."""
    from deepspeed.runtime.zero import stage3, stage_1_and_2

    embedding = (50257 + _SEQUENCE) * _HIDDEN
    layer = 12 * _HIDDEN**2 + 13 * _HIDDEN
    total = embedding + _LAYERS * layer + 2 * _HIDDEN
    if stage == 2:
        bytes_, _ = stage_1_and_2.estimate_zero2_model_states_mem_needs(
            total, num_gpus_per_node=8, num_nodes=1, cpu_offload=offload != "none", additional_buffer_factor=1.5
        )
    else:
        _, bytes_, _ = stage3.estimate_zero3_model_states_mem_needs(
            total, 50257 * _HIDDEN, num_gpus_per_node=8, num_nodes=1, cpu_offload=offload != "none",
            cpu_offload_params=offload == "optimizer and parameters", zero_init=True, additional_buffer_factor=1.5,
        )  # fmt: skip
    return float(bytes_) / 2**30


def main() -> None:
    """Write docs/results/rehearse-published.md and .json."""
    parser = results.parser(__doc__)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--stage", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--offload", default="none", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options)
        return
    rows = list(_rows())
    results.write("rehearse-published", "Rehearsals beside published figures", _TEXT, rows, options.out)
    sys.stdout.write(json.dumps({"rows": len(rows)}) + "\n")


if __name__ == "__main__":
    main()
