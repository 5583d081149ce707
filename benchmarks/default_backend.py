# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which backend a program gets that names none, by launcher, and how fast two ranks reduce 1 MB with it.

    python -m benchmarks.default_backend

Each launcher starts the same two ranks, which time the group they got, gloo, and DeepSpeed's own op in turns.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from accel_testkit.bench import collectives
from benchmarks import results
from benchmarks.launch import BIN, ROOT, free_port, launchers

CONFIG = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}
#: What starts the ranks, and what makes the process group in them.
CASES = {
    "python (one process)": ("python", "deepspeed"),
    "deepspeed": ("deepspeed", "deepspeed"),
    "torchrun": ("torchrun", "deepspeed"),
    "accel launch": ("accel launch", "deepspeed"),
    "torchrun, Trainer with a DeepSpeed config": ("torchrun", "trainer"),
    "torchrun, accelerate with a DeepSpeed plug-in": ("torchrun", "accelerate"),
}


def make_group(how: str, folder: str) -> None:
    """Make the default process group as DeepSpeed, the Trainer or accelerate does, naming no backend."""
    if how == "deepspeed":
        import deepspeed

        deepspeed.init_distributed()
    elif how == "trainer":
        from transformers import TrainingArguments

        _ = TrainingArguments(output_dir=folder, deepspeed=CONFIG).device
    else:
        from accelerate import Accelerator, DeepSpeedPlugin

        Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=CONFIG))


def rank(how: str, folder: str, rounds: int) -> None:
    """Be one rank; rank 0 writes what it found."""
    torch.set_num_threads(1)
    make_group(how, folder)
    tensor = torch.ones(1 << 18)
    gloo = dist.new_group(backend="gloo")
    calls: dict[str, Any] = {
        "default": lambda: dist.all_reduce(tensor),
        "gloo": lambda: dist.all_reduce(tensor, group=gloo),
    }
    upstreams = collectives.upstreams_op(dist.get_world_size()) if dist.get_world_size() > 1 else None
    if upstreams is not None:
        calls["upstream"] = lambda: upstreams(tensor)
    collectives.after_barrier(calls, 3)
    taken = collectives.after_barrier(calls, rounds)
    if dist.get_rank() == 0:
        found = {"backend": dist.get_backend(), "taken": taken}
        Path(folder, "found.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    os._exit(0)


def measured(name: str, rounds: int) -> dict[str, Any]:
    """The row of a launcher."""
    launcher, how = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        script = Path(folder, "rank.py")
        script.write_text(
            f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom benchmarks.default_backend import rank\n"
            f"rank({how!r}, {folder!r}, {rounds})\n",
            encoding="utf-8",
        )
        alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "MASTER_PORT": str(port)}
        command = [sys.executable] if launcher == "python" else launchers(port)[launcher]
        environment |= alone if launcher == "python" else {}
        done = subprocess.run(
            [*command, str(script)], env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        found = json.loads(Path(folder, "found.json").read_text(encoding="utf-8"))
    median = {each: statistics.median(times) for each, times in found["taken"].items()}
    return {
        "launcher": name,
        "backend": found["backend"],
        "1 MB all_reduce, µs": median["default"] * 1e6,
        **{
            f"{each} ÷ it": f"{median[each] / median['default']:.2f}" if each in median else "not measured"
            for each in ("gloo", "upstream")
        },
    }


def main() -> int:
    """Measure and write docs/results/default_backend.{md,json}."""
    options = results.parser(__doc__, rounds=101).parse_args()
    load = os.getloadavg()[0]
    rows = [measured(name, options.rounds) for name in CASES]
    text = (
        "An unchanged program that names no backend: DeepSpeed, the Trainer or accelerate makes the process group of "
        "two ranks, one thread each. all_reduce of 1 MB of float32 by torch.distributed; gloo and DeepSpeed's own op "
        "take turns with it. Medians of rank 0. A ratio above 1: what the program gets is faster. "
        f"Other work loaded the machine: {load:.1f} processes when it began."
    )
    results.write("default_backend", "The backend that an unchanged program gets", text, rows, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
