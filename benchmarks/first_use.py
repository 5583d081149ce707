# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""From a cold cache to the first step of ZeRO-Offload's optimizer: ours with and without a compiler, DeepSpeed's own.

Every case is a fresh process with empty caches, and times the first `adam_update` from the moment torch and
DeepSpeed are imported; "no custom op" is torch.optim.AdamW's first step, the least there can be.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import results

_COMMON = """
import time, warnings
warnings.simplefilter("ignore")
import torch, deepspeed
tensors = [torch.rand(1_000_000) for _ in range(4)]
began = time.perf_counter()
{body}
print(time.perf_counter() - began)
"""
_STEP = """
op.create_adam(0, 1e-3, 0.9, 0.999, 1e-8, 0.01, True, False)
op.adam_update(0, 1, 1e-3, 0.9, 0.999, 1e-8, 0.01, True, *tensors)
"""
_OURS = "from accel_host.op_builder import CPUAdamBuilder\nop = CPUAdamBuilder().load()" + _STEP
_THEIRS = (
    "from deepspeed.ops.op_builder.cpu import CPUAdamBuilder\nop = CPUAdamBuilder().load(verbose=False)"
    + _STEP
)
_TORCH = "p = torch.nn.Parameter(tensors[0]); p.grad = tensors[1]; torch.optim.AdamW([p]).step()"
CASES = {
    "no custom op (torch.optim.AdamW)": (_TORCH, True),
    "accel-host, as installed": (_OURS, True),
    "accel-host, no compiler": (_OURS, False),
    "DeepSpeed's cpu_adam": (_THEIRS, True),
}


def seconds(body: str, compiler: bool) -> float:
    """The first step in a fresh process, with every cache empty."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "ACCEL_CACHE_DIR": str(Path(folder, "accel")),
            "TORCH_EXTENSIONS_DIR": str(Path(folder, "torch")),
            "DS_ACCELERATOR": "cpu",
        }
        if not compiler:
            environment["PATH"] = ""
            environment.pop("CXX", None)
        command = [sys.executable, "-c", _COMMON.format(body=body)]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return float(ended.stdout.split()[-1])


def main() -> int:
    """Measure and write docs/results/first_use.{md,json}."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=5, help="of all but DeepSpeed's, which is compiled once"
    )
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    samples: dict[str, list[float]] = {name: [] for name in CASES}
    for number in range(options.rounds):
        for name, (body, compiler) in CASES.items():
            if body is not _THEIRS or number == 0:
                samples[name].append(seconds(body, compiler))
    least = statistics.median(samples["no custom op (torch.optim.AdamW)"])
    rows: list[dict[str, Any]] = [
        {
            "first step with": name,
            "s": round(statistics.median(values), 3),
            "s beyond no custom op": round(statistics.median(values) - least, 3),
            "runs": len(values),
        }
        for name, values in samples.items()
    ]
    text = (
        "Fresh processes, empty caches, one million parameters; medians. `as installed` compiles the packaged source "
        "where the installation carries no built library (a checkout); a wheel carries it. Goals: within 1 s of no "
        "custom op without a compiler; a forced source build within 2 s."
    )
    results.write("first_use", "Time to the first step of an offloaded optimizer", text, rows, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
