# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ZeRO-Offload's host path: stock DeepSpeed against the replaced methods, on our kernels in both cases.

Each case is its own process, with linear layers of 4096 x 4096 on the CPU accelerator. The methods are replaced
and put back in turn, one iteration each. Peak memory is that of two more processes, one each way.
"""

import argparse
import json
import logging
import os
import resource
import statistics
import sys
from functools import partial
from typing import Any

import torch

from accel_core.processes import run
from accel_testkit import timing
from accel_zero import table
from benchmarks import results

WIDTH = 4096
#: Parts of an iteration that are the model's, whose products are torch's in both.
OF_MODEL = ("forward", "backward: model")
#: ZeRO stage, type, threads.
CASES = tuple((stage, dtype, threads) for stage in (2, 3) for dtype in ("bf16", "fp32") for threads in (1, 2))


def engine(stage: int, dtype: str, millions: int) -> Any:
    """Return DeepSpeed's engine with an offloaded optimizer, on one rank."""
    import deepspeed

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    layers = max(1, round(millions * 1e6 / WIDTH**2))
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.01}},
        "zero_optimization": {"stage": stage, "offload_optimizer": {"device": "cpu"}},
        "bf16": {"enabled": dtype == "bf16"},
    }
    return deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())[0]


def batch(dtype: str) -> torch.Tensor:
    """Return the input of an iteration."""
    return torch.randn(1, WIDTH, dtype=torch.bfloat16 if dtype == "bf16" else torch.float32)


def iteration(model: Any, inputs: torch.Tensor) -> tuple[float, float]:
    """Return the seconds of backward and of step."""
    loss = model(inputs).float().pow(2).mean()
    return timing.seconds(lambda: model.backward(loss)), timing.seconds(model.step)


def methods(replaced: bool) -> None:
    """Replace DeepSpeed's methods, or put them back."""
    for module in (sys.modules[f"deepspeed.runtime.zero.{name}"] for name in ("stage_1_and_2", "stage3")):
        table.restore(module)
        if replaced:
            table.apply(module)


def timed(stage: int, dtype: str, millions: int, rounds: int) -> dict[str, Any]:
    """Medians of both ways, and the median of the ratios of neighbouring iterations."""
    model, inputs = engine(stage, dtype, millions), batch(dtype)

    def one(replaced: bool) -> tuple[float, float]:
        methods(replaced)
        return iteration(model, inputs)

    # The first two rounds allocate.
    runs = timing.turns({"DeepSpeed": partial(one, False), "ours": partial(one, True)}, rounds, warm_up=2)
    parted = {
        f"{way}{part} ms": 1e3 * statistics.median(pair[number] for pair in runs[name])
        for number, part in enumerate(("backward", "step"))
        for way, name in (("stock ", "DeepSpeed"), ("", "ours"))
    }
    ratios = (sum(stock) / sum(ours) for stock, ours in zip(runs["DeepSpeed"], runs["ours"], strict=True))
    return {**parted, "stock ÷ ours": statistics.median(ratios)}


def peak(stage: int, dtype: str, millions: int, replaced: bool) -> int:
    """Largest resident memory of a process that takes three iterations, in MiB."""
    model, inputs = engine(stage, dtype, millions), batch(dtype)
    methods(replaced)
    for _ in range(3):
        iteration(model, inputs)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def parts(stage: int, dtype: str, millions: int, rounds: int) -> dict[str, dict[str, float]]:
    """Mean milliseconds of the parts of an iteration, with DeepSpeed's methods and with ours."""
    from accel_zero.profile import Profile, profiled

    model, inputs = engine(stage, dtype, millions), batch(dtype)

    def measure(replaced: bool) -> list[dict[str, float]]:
        methods(replaced)
        with profiled() as profile:
            iteration(model, inputs)
        return profile.iterations

    runs = timing.turns({"stock": partial(measure, False), "ours": partial(measure, True)}, rounds + 2)
    return {
        name: {
            part: 1e3 * seconds
            for part, seconds in Profile([each for found in iterations for each in found]).mean(2).items()
        }
        for name, iterations in runs.items()
    }


def child(*arguments: Any, threads: int) -> Any:
    """Run this module in its own process; returns what it prints last, as JSON."""
    environment = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "benchmarks.offload", "--child", json.dumps(arguments)]
    done = run(command, env=os.environ | environment, stderr=None)
    done.check_returncode()
    return json.loads(done.stdout.splitlines()[-1])


def row(stage: int, dtype: str, threads: int, millions: int, rounds: int) -> dict[str, Any]:
    """One case."""
    figures = child("timed", stage, dtype, millions, rounds, threads=threads)
    bars = child("parts", stage, dtype, millions, rounds, threads=threads)
    stock, ours = (
        sum(ms for part, ms in bars[name].items() if part not in OF_MODEL) for name in ("stock", "ours")
    )
    figures["without the model"] = stock / ours
    case = {"ZeRO": str(stage), "type": dtype, "threads": str(threads), "parameters": f"{millions} M"}
    memory: dict[str, Any] = {
        name: child("peak", stage, dtype, millions, replaced, threads=threads)
        for name, replaced in (("stock peak MiB", False), ("peak MiB", True))
    }
    return {**case, **figures, **memory}


def main() -> int:
    """Measure and write docs/results/offload.{md,json}."""
    parser = results.parser(__doc__, rounds=9)
    parser.add_argument("--millions", type=int, default=100, help="parameters")
    parser.add_argument("--cases", type=int, default=len(CASES), help="only the first ones")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, *arguments = json.loads(options.child)
        print(json.dumps({"timed": timed, "peak": peak, "parts": parts}[kind](*arguments)))
        return 0
    rows = [row(*case, options.millions, options.rounds) for case in CASES[: options.cases]]
    text = (
        f"Medians of {options.rounds} rounds; in each, an iteration with DeepSpeed's methods and one with ours, in one "
        "process, with our optimizer kernel in both. AdamW, gradient clipping, batch of one, one rank on the CPU "
        "accelerator, so that nearly all of backward and step is the path of the gradients. The ratio is the median of "
        "the rounds' ratios of backward + step; without the model, it is that of the means of all "
        "[parts](offload-parts-2.md) but the model's own forward and backward, from another process. Goal: 2.5 "
        "without the model. Peaks are the largest resident memory of a process of each kind."
    )
    results.write("offload", "ZeRO-Offload's host path", text, rows, options.out)
    write_parts(options)
    return 0


def write_parts(options: argparse.Namespace) -> None:
    """Write docs/results/offload-parts.{md,json}: Amdahl's table, before and after."""
    for stage in (2, 3):
        bars = child("parts", stage, "bf16", options.millions, options.rounds, threads=1)
        names = dict.fromkeys((*bars["stock"], *bars["ours"]))
        total = sum(bars["stock"].values())
        rows = [
            {
                "part": name,
                "stock ms": bars["stock"].get(name, 0.0),
                "ours ms": bars["ours"].get(name, 0.0),
                "share of stock %": 100 * bars["stock"].get(name, 0.0) / total,
                "the iteration without it": f"{total / (total - bars['stock'].get(name, 0.0)):.2f}x as fast",
            }
            for name in names
        ]
        text = (
            f"ZeRO-{stage}, bf16, {options.millions} M parameters, one thread: means of {options.rounds} iterations of "
            "each kind, in turn. The parts are those of `accel zero profile` (docs/offload.md). The last column is "
            "Amdahl's: the speed of stock DeepSpeed, were the part to cost nothing."
        )
        name, title = f"offload-parts-{stage}", f"ZeRO-Offload: the parts of an iteration, ZeRO-{stage}"
        results.write(name, title, text, rows, options.out)


if __name__ == "__main__":
    sys.exit(main())
