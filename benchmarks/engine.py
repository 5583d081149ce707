# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What an engine costs the host: 600 small parameters with plain torch, DDP, FSDP2, stock DeepSpeed and our methods.

A process has all engines of one type, and runs each once a round. Optimizers are torch's Adam.
"""

import argparse
import collections
import functools
import importlib
import json
import logging
import os
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from accel_core.api import get_accelerator
from accel_core.processes import run
from accel_testkit import timing
from accel_testkit.suite import launch
from accel_zero import table
from benchmarks import results

MODULES, WIDTH = 300, 16
PARAMETERS = 2 * MODULES
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
STAGES = (0, 1, 2, 3)
#: What a user would take instead.
INSTEAD = {0: "DDP", 1: "DDP", 2: "DDP", 3: "FSDP2"}
PARTS = ("forward", "backward", "step")
TEXT = (
    f"Medians of {{}} rounds, in one process for each type; a round has an iteration of each engine: {PARAMETERS} "
    f"parameters in {MODULES} linear layers of width {WIDTH}, batch of one, one rank and thread, torch's Adam, no "
    "offload. Stock is DeepSpeed with its own methods, ours with [those of accel-zero](../engine.md), which have the "
    "same bits. FSDP2 shards each layer; at ZeRO 3 all parameters are persistent. Ratios are medians of those of the "
    "rounds. Calls of functions from Python do not depend on other load. Goals: 1.3 of DDP, 1.0 of FSDP2.\n\n"
    "Stock methods run with `overlap_comm` or another accumulation type at ZeRO 1 and 2, for MoE, Muon, ZenFlow and "
    "torch autocast (other streams, buffers or groups), and for ZeRO 3's modules that gather. On devices the norms are "
    "DeepSpeed's: a list's norms have other bits there. At ZeRO 0, torch's loop over the parameters is left."
)
Step = tuple[float, float, float]
Engine = Callable[..., Step]


def layers(dtype: str) -> torch.nn.Module:
    """Return modules with a weight and a bias each."""
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(MODULES))).to(DTYPES[dtype])


def methods(replaced: bool) -> None:
    """Replace DeepSpeed's methods, or put them back."""
    for name in dict.fromkeys(row.module for row in table.SPEEDUPS):
        table.restore(importlib.import_module(name))
        if replaced:
            table.apply(sys.modules[name], table.SPEEDUPS)


def of_torch(dtype: str, wrap: Callable[[torch.nn.Module], torch.nn.Module]) -> Engine:
    """Return an iteration of torch's own."""
    model = wrap(layers(dtype))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.step()
        optimizer.zero_grad()

    return functools.partial(iteration, model, lambda loss: loss.backward(), step, dtype)


def sharded(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model with each module a unit of FSDP2, as ZeRO 3 has it."""
    from torch.distributed.fsdp import fully_shard

    for layer in model.children():
        fully_shard(layer)
    wrapped: torch.nn.Module = fully_shard(model)
    return wrapped


def of_deepspeed(dtype: str, stage: int, replaced: bool) -> Engine:
    """Return an iteration of DeepSpeed."""
    import deepspeed

    methods(replaced)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": dtype == "bf16"},
    }
    model, linear = layers(dtype), functional.linear
    engine = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())[0]
    functional.linear, of_engine = linear, functional.linear  # ZeRO 3 replaces it for all models

    def one(count: bool = False) -> Step:
        methods(replaced)
        functional.linear = of_engine
        try:
            return iteration(engine, engine.backward, engine.step, dtype, count)
        finally:
            functional.linear = linear

    return one


def iteration(
    model: Any, backward: Callable[[Any], Any], step: Callable[[], Any], dtype: str, count: bool = False
) -> Step:
    """Return the seconds of forward, backward and step, or the calls of each."""
    inputs = torch.ones(1, WIDTH, dtype=DTYPES[dtype])
    measure, loss = calls if count else timing.seconds, []
    return (
        measure(lambda: loss.append(model(inputs).float().pow(2).mean())),
        measure(lambda: backward(loss.pop())),
        measure(step),
    )


def engines(dtype: str) -> dict[str, Engine]:
    """Return an iteration of each kind."""
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    launch.alone(get_accelerator())
    wraps = {"plain": torch.nn.Sequential, "DDP": torch.nn.parallel.DistributedDataParallel, "FSDP2": sharded}
    found = {name: of_torch(dtype, wrap) for name, wrap in wraps.items()}
    for stage in STAGES:
        found[f"stock {stage}"] = of_deepspeed(dtype, stage, False)
        found[f"ours {stage}"] = of_deepspeed(dtype, stage, True)
    return found


def calls(call: Callable[[], object]) -> int:
    """Return the number of Python and C functions that are called from Python."""
    events = collections.Counter[str]()
    sys.setprofile(lambda frame, event, argument: events.update([event]))
    try:
        call()
    finally:
        sys.setprofile(None)
    return events["call"] + events["c_call"]


def measure(dtype: str, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each engine; the ratios are medians of those of single rounds."""
    found = engines(dtype)
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
                "engine": f"{kind}, ZeRO {stage}" if stage else name,
                "type": dtype,
                **{f"{part} ms": value for part, value in zip(PARTS, medians, strict=True)},
                "÷ stock": f"{ratio(name, f'stock {stage}'):.2f}" if stage else "",
                "compared with": instead,
                "÷ it": ratio(name, instead),
                "calls ÷ parameter": sum(one(count=True)) / PARAMETERS,
            }
        )
    return rows


def main() -> int:
    """Measure and write docs/results/engine-speed.{md,json}."""
    parser = results.parser(__doc__, rounds=15)
    parser.add_argument("--child", choices=DTYPES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child, options.rounds)))
        return 0
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.engine", "--rounds", str(options.rounds), "--child"]
    rows = []
    for dtype in DTYPES:
        done = run([*command, dtype], env=environment, stderr=None)
        done.check_returncode()
        rows += json.loads(done.stdout.splitlines()[-1])
    results.write(
        "engine-speed", "Host time of ZeRO's engine", TEXT.format(options.rounds), rows, options.out
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
