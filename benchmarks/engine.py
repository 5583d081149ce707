# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Host time of engines: three models with plain torch, DDP, FSDP2, stock DeepSpeed and our methods.

A process has all engines of one model and type, and runs each once a round. Optimizers are torch's Adam.
"""

import argparse
import functools
import importlib
import itertools
import json
import logging
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import Linear, functional

from accel_core.api import get_accelerator
from accel_core.processes import run
from accel_testkit import timing
from accel_zero import table
from benchmarks import results

WIDTH, WIDE = 128, 8192
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
STAGES = (0, 1, 2, 3)
#: What a user would take instead.
INSTEAD = {0: "DDP", 1: "DDP", 2: "DDP", 3: "FSDP2"}
PARTS = ("forward", "backward", "step")
TEXT = (
    "Medians of {} rounds, in one process a rank for each model and type; a round has an iteration of each engine. "
    "*small* has 600 parameters in 300 linear layers of width 16; *GPT* has 12 transformer layers of width 128 and a "
    "sequence of 64; *mixed* has six of these layers, two of a million parameters and 200 linear layers of width 128. "
    "One thread a rank, torch's Adam, gradients clipped at a norm of 1, no offload. Ours has [the methods of "
    "accel-zero](../engine.md), with the same bits. FSDP2 shards each layer. Ratios are medians of those of the "
    "rounds. Calls of functions from Python do not depend on other load. Goals: 1.3 of DDP, 1.0 of FSDP2."
)
Step = tuple[float, float, float]
Engine = Callable[..., Step]


def linears(width: int, count: int) -> list[torch.nn.Module]:
    """Return layers with a weight and a bias each."""
    return [Linear(width, width) for _ in range(count)]


def transformers(count: int) -> list[torch.nn.Module]:
    """Return transformer layers, of 12 parameters each."""
    layer = functools.partial(torch.nn.TransformerEncoderLayer, WIDTH, 4, dropout=0.0, batch_first=True)
    return [layer(norm_first=True) for _ in range(count)]


MODELS = {
    "small": lambda: linears(16, 300),
    "GPT": lambda: transformers(12),
    "mixed": lambda: [*linears(WIDTH, 200), *transformers(6), Linear(WIDTH, WIDE), Linear(WIDE, WIDTH)],
}  # fmt: skip
SHAPES = {"small": (1, 16), "GPT": (1, 64, WIDTH), "mixed": (1, 4, WIDTH)}


def layers(model: str, dtype: str) -> torch.nn.Module:
    """Return a model, the same on each rank."""
    torch.manual_seed(0)
    return torch.nn.Sequential(*MODELS[model]()).to(DTYPES[dtype])


def methods(replaced: bool) -> None:
    """Replace DeepSpeed's methods, or put them back."""
    for name in dict.fromkeys(row.module for row in table.SPEEDUPS):
        table.restore(importlib.import_module(name))
        if replaced:
            table.apply(sys.modules[name], table.SPEEDUPS)


def of_torch(name: str, dtype: str, wrap: Callable[[torch.nn.Module], torch.nn.Module]) -> Engine:
    """Return an iteration of torch's own."""
    model = wrap(layers(name, dtype))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # as DeepSpeed does by default
        optimizer.step()
        optimizer.zero_grad()

    return functools.partial(iteration, model, lambda loss: loss.backward(), step, inputs(name, dtype))


def sharded(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model with each module a unit of FSDP2, as ZeRO 3 has it."""
    from torch.distributed.fsdp import fully_shard

    for layer in model.children():
        fully_shard(layer)
    wrapped: torch.nn.Module = fully_shard(model)
    return wrapped


def inputs(model: str, dtype: str) -> torch.Tensor:
    """Return what the model takes."""
    return torch.ones(SHAPES[model], dtype=DTYPES[dtype])


def of_deepspeed(name: str, dtype: str, stage: int, replaced: bool) -> Engine:
    """Return an iteration of DeepSpeed."""
    import deepspeed

    methods(replaced)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": dtype == "bf16"},
    }
    model, linear = layers(name, dtype), functional.linear
    engine = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())[0]
    functional.linear, of_engine = linear, functional.linear  # ZeRO 3 replaces it for all models

    def one(count: bool = False) -> Step:
        methods(replaced)
        functional.linear = of_engine
        try:
            return iteration(engine, engine.backward, engine.step, inputs(name, dtype), count)
        finally:
            functional.linear = linear

    return one


def iteration(
    model: Any, backward: Callable[[Any], Any], step: Callable[[], Any], inputs: torch.Tensor, count: bool = False
) -> Step:  # fmt: skip
    """Return the seconds of forward, backward and step, or the calls of each."""
    measure, loss = calls if count else timing.seconds, []
    return (
        measure(lambda: loss.append(model(inputs).float().pow(2).mean())),
        measure(lambda: backward(loss.pop())),
        measure(step),
    )


def engines(model: str, dtype: str) -> dict[str, Engine]:
    """Return an iteration of each kind."""
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    torch.distributed.init_process_group(get_accelerator().communication_backend_name())
    wraps: dict[str, Callable[[torch.nn.Module], torch.nn.Module]]
    wraps = {"plain": torch.nn.Sequential, "DDP": torch.nn.parallel.DistributedDataParallel, "FSDP2": sharded}
    found = {name: of_torch(model, dtype, wrap) for name, wrap in wraps.items()}
    for stage in STAGES:
        found[f"stock {stage}"] = of_deepspeed(model, dtype, stage, False)
        found[f"ours {stage}"] = of_deepspeed(model, dtype, stage, True)
    return found


def calls(call: Callable[[], object]) -> int:
    """Return the number of Python and C functions that are called from Python."""
    events: list[str] = []
    sys.setprofile(lambda frame, event, argument: events.append(event))
    try:
        call()
    finally:
        sys.setprofile(None)
    return events.count("call") + events.count("c_call")


def measure(model: str, dtype: str, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each engine; the ratios are medians of those of single rounds."""
    found, parameters = engines(model, dtype), len([*layers(model, dtype).parameters()])
    runs = timing.turns(found, rounds, warm_up=4)
    totals = {name: [sum(each) for each in parts] for name, parts in runs.items()}

    def ratio(name: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(totals[name], totals[other], strict=True))

    rows = []
    for name, one in found.items():
        kind, _, stage = name.partition(" ")
        medians = (statistics.median(1e3 * part for part in parts) for parts in zip(*runs[name], strict=True))
        instead = INSTEAD[int(stage)] if stage else "DDP"
        rows.append(
            {
                "model": model,
                "ranks": torch.distributed.get_world_size(),
                "type": dtype,
                "engine": f"{kind}, ZeRO {stage}" if stage else name,
                **{f"{part} ms": value for part, value in zip(PARTS, medians, strict=True)},
                "÷ stock": f"{ratio(name, f'stock {stage}'):.2f}" if stage else "",
                "compared with": instead,
                "÷ it": ratio(name, instead),
                "calls ÷ parameter": sum(one(count=True)) / parameters,
            }
        )
    return rows


def main() -> int:
    """Measure and write docs/results/engine-speed.{md,json}."""
    parser = results.parser(__doc__, rounds=15)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        model, dtype = options.child
        rows = measure(model, dtype, options.rounds)
        if torch.distributed.get_rank() == 0:
            options.out.write_text(json.dumps(rows))
        return 0
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    options_of_launch = "launch --no_local_rank --module --num_accelerators"
    command = [sys.executable, "-m", "accel_core.cli", *options_of_launch.split()]
    rows = []
    for ranks, *what in itertools.product("12", MODELS, DTYPES):
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder, "rows.json")
            words = [*command, ranks, "benchmarks.engine", f"--rounds={options.rounds}", f"--out={found}"]
            run([*words, "--child", *what], env=environment, stderr=None).check_returncode()
            rows += json.loads(found.read_text())
    results.write(
        "engine-speed", "Host time of ZeRO's engine", TEXT.format(options.rounds), rows, options.out
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
