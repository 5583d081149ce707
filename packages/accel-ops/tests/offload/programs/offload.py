# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Trains with an offloaded optimizer, with stock methods of DeepSpeed and with the replaced ones."""

import importlib
import json
import logging
import os
from typing import Any
from unittest import mock

import torch


class Model(torch.nn.Module):
    """A language model in miniature, with layers that only some steps use."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 24)
        self.hidden = torch.nn.Linear(24, 61)
        self.sometimes = torch.nn.Linear(24, 24)
        self.head = torch.nn.Linear(61, 50)

    def forward(self, words: torch.Tensor, use: bool) -> torch.Tensor:
        values = self.embedding(words)
        if use:
            values = values + self.sometimes(values)
        logits = self.head(torch.tanh(self.hidden(values))).float()
        return torch.nn.functional.cross_entropy(logits.view(-1, 50), words.roll(1).view(-1))


def config(
    stage: int, dtype: str, accumulation: int, clip: float, optimizer: str, **more: Any
) -> dict[str, Any]:
    """DeepSpeed's configuration; `zero` in `more` adds to the ZeRO options."""
    zero = {
        "stage": stage,
        "offload_optimizer": {"device": "cpu"},
        "stage3_param_persistence_threshold": 0,
        "sub_group_size": 3000,
        "reduce_bucket_size": 2500,
        **more.pop("zero", {}),
    }
    made: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": clip,
        "optimizer": {"type": optimizer, "params": {"lr": 3e-3}},
        "zero_optimization": zero,
    }
    if dtype == "bf16":
        made["bf16"] = {"enabled": True, **more.pop("bf16", {})}
    if dtype == "fp16":
        # The first steps overflow.
        made["fp16"] = {"enabled": True, "initial_scale_power": 20, "loss_scale_window": 3}
    return made | more


def train(made: dict[str, Any], steps: int) -> tuple[list[str], Any]:
    """Losses and norms of each step as hexadecimal floats, and DeepSpeed's optimizer."""
    import deepspeed

    torch.manual_seed(0)
    model = Model()
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, config=json.loads(json.dumps(made)), model_parameters=model.parameters()
    )
    generator = torch.Generator().manual_seed(5 + int(os.environ["RANK"]))
    seen = []
    for step in range(steps):
        for _ in range(made["gradient_accumulation_steps"]):
            words = torch.randint(0, 50, (2, 9), generator=generator).to(engine.device)
            loss = engine(words, step % 3 != 1)
            engine.backward(loss)
            engine.step()
            seen.append(loss.item().hex())
        seen.append(float(engine.get_global_grad_norm()).hex())
    engine.destroy()
    return seen, optimizer


def main(store: str, cases: list[dict[str, Any]], steps: int = 5) -> None:
    """Print a list of [stock, replaced, whether kernels scaled the gradients, number of our norms] for the cases.

    store: the file through which the ranks find each other.
    """
    init(store)
    print(json.dumps([compare(case, steps) for case in cases]), flush=True)
    os._exit(0)  # torch now and then aborts over threads of gloo


def init(store: str) -> None:
    """Join the process group of this job."""
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    # Every CPU computes in fp16, but DeepSpeed refuses to train on those without instructions for it.
    get_accelerator().is_fp16_supported = lambda: True  # type: ignore[method-assign]
    deepspeed.init_distributed(
        dist_backend=get_accelerator().communication_backend_name(),
        auto_mpi_discovery=False,
        verbose=False,
        init_method=f"file://{store}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )


def compare(given: dict[str, Any], steps: int) -> list[Any]:
    """Train with stock methods, then with the replaced ones; `unit` in the case changes `host_path._UNIT`."""
    case = dict(given)
    unit = case.pop("unit", 2.0**-53)
    from accel_ops.offload import host_path, speedups

    modules = [importlib.import_module(name) for name in speedups.MODULES]
    for module in modules:
        speedups.restore(module)
    stock, untouched = train(config(**case), steps)
    assert not hasattr(untouched, "_accel_host_path")
    for module in modules:
        assert all(status.on for status in speedups.apply(module))
    norms = 0
    original = host_path.exact_norms

    def counting(path: Any, *arguments: Any) -> Any:
        nonlocal norms
        norms += len(path.norms)
        return original(path, *arguments)

    with mock.patch.object(host_path, "exact_norms", counting), mock.patch.object(host_path, "_UNIT", unit):
        replaced, optimizer = train(config(**case), steps)
    return [stock, replaced, bool(optimizer._accel_host_path.unscaled), norms]
