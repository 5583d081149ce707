# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What being installed costs a program that imports torch, and one that imports deepspeed.

Every sample is a fresh interpreter; the variants take turns within each round.
"""

import json
import os
import statistics
import sys
from functools import partial
from typing import Any

from accel_core.processes import run
from accel_testkit import timing
from benchmarks import results

_ENTRY_POINT = """
import importlib.metadata, json, sys, time
import torch
before = set(sys.modules)
(point,) = [p for p in importlib.metadata.entry_points(group="torch.backends") if p.name == "accel_core"]
start = time.perf_counter()
point.load()()
print(json.dumps([time.perf_counter() - start, sorted(set(sys.modules) - before)]))
"""
_TIMED = """
import json, time
start = time.perf_counter()
import {module}
print(json.dumps([time.perf_counter() - start, []]))
"""
_AUTOLOAD_OFF = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}

#: name, code, environment. The last two differ in the bridge alone.
VARIANTS = (
    ("our entry point alone", _ENTRY_POINT, _AUTOLOAD_OFF),
    ("import torch, autoload off", _TIMED.format(module="torch"), _AUTOLOAD_OFF),
    ("import torch, with accel", _TIMED.format(module="torch"), {}),
    ("import deepspeed, ACCEL_BRIDGE=0", _TIMED.format(module="deepspeed"), {"ACCEL_BRIDGE": "0"}),
    ("import deepspeed, with accel", _TIMED.format(module="deepspeed"), {}),
)


def sample(code: str, environment: dict[str, str]) -> tuple[float, list[str]]:
    """Seconds and newly loaded modules, as the code printed them in a fresh interpreter."""
    env = {**os.environ, "DS_ACCELERATOR": "cpu", **environment}
    done = run([sys.executable, "-c", code], env=env)
    done.check_returncode()
    seconds, modules = json.loads(done.stdout.splitlines()[-1])
    return seconds, modules


def main() -> int:
    """Measure and write docs/results/imports.{md,json}."""
    options = results.parser(__doc__).parse_args()
    samples = timing.turns({name: partial(sample, *more) for name, *more in VARIANTS}, options.rounds)
    modules = samples[VARIANTS[0][0]][0][1]
    seconds = {name: [taken for taken, _ in found] for name, found in samples.items()}
    rows: list[dict[str, Any]] = [
        {"what": name, "median ms": statistics.median(times) * 1e3, "min ms": min(times) * 1e3}
        for name, times in seconds.items()
    ]
    text = (
        f"Medians of {options.rounds} fresh interpreters each, taking turns. Goal: less than 50 ms inside our entry "
        f"point. It loads {len(modules)} modules after torch: {', '.join(f'`{module}`' for module in modules)}."
    )
    results.write("imports", "Cost of being installed", text, rows, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
