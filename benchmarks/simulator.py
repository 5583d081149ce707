# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Training steps of many small operators on a simulated device, against the same steps on the CPU.

One process runs both in turn; each round gives one ratio, and the medians of the rounds are reported.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import accel_sim
from accel_testkit import timing
from benchmarks import results

_TEXT = """\
What a simulated device adds to a program of small operators, where it adds most: on large ones the CPU's kernels take
all the time. One process trains the same model on both, in turn; a round's ratio is of two times that were measured
one after the other. The backward pass runs on a thread of its own, as on every accelerator, and on the CPU it does not.

    python -m benchmarks.simulator"""
_DEVICE = "npu"
_STEPS = 5  # in a sample


def _model(foreach: bool, device: str) -> Callable[[], None]:
    """Return a function that trains one step."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(6)]
    model = nn.Sequential(*layers, nn.Linear(64, 8)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=foreach)
    x, target = torch.randn(32, 64).to(device), torch.randint(0, 8, (32,)).to(device)

    def step() -> None:
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _forward(device: str) -> Callable[[], None]:
    """Return a function that calls one small operator many times."""
    import torch

    x = torch.ones(8, 8, device=device)

    def step() -> None:
        y = x
        for _ in range(400):
            y = y + x

    return step


_KINDS = {
    "training step, AdamW by single operators": partial(_model, False),
    "training step, AdamW by foreach operators": partial(_model, True),
    "400 additions of 8 x 8": _forward,
}


def _milliseconds(step: Callable[[], None]) -> float:
    return 1000 * timing.seconds(lambda: [step() for _ in range(_STEPS)]) / _STEPS


def worker(rounds: int) -> None:
    """Measure in this process, which has the device, and print milliseconds and ratios as JSON."""
    import torch_npu  # noqa: F401

    found: dict[str, Any] = {}
    for name, make in _KINDS.items():
        steps = {device: make(device) for device in ("cpu", _DEVICE)}
        runs = {device: partial(_milliseconds, step) for device, step in steps.items()}
        found[name] = timing.turns(runs, rounds, warm_up=3)
    sys.stdout.write(json.dumps(found) + "\n")


def main() -> None:
    """Write docs/results/simulator.md and .json."""
    options = results.parser(__doc__).parse_args()
    environment = accel_sim.environment(_DEVICE, base={**os.environ, "OMP_NUM_THREADS": "1"})
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.simulator", "--worker", str(options.rounds)]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=root)
    rows = []
    for name, times in json.loads(done.stdout.splitlines()[-1]).items():
        ratios = [mine / cpu for mine, cpu in zip(times[_DEVICE], times["cpu"], strict=True)]
        rows.append(
            {
                "program": name,
                "CPU, ms": statistics.median(times["cpu"]),
                "simulated npu, ms": statistics.median(times[_DEVICE]),
                "ratio": statistics.median(ratios),
            }
        )
    results.write("simulator", "Steps on a simulated device", _TEXT, rows, options.out)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(int(sys.argv[2]))
    else:
        main()
