# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Train a model that is larger than this process's memory, with stock DeepSpeed: parameters and Adam's states on disk.

python examples/zero_infinity_nvme/train.py --folder /nvme/run
python examples/zero_infinity_nvme/train.py --folder /nvme/run --resume
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch
from memory import limit, peak, return_freed_memory
from timing import Clock

sys.path.append(str(Path(__file__).parents[1]))
from byte_lm.progress import working

#: Of a parameter: bf16 value, float32 value, two states of Adam.
STATE_BYTES = 2 + 4 + 4 + 4
#: A limit at which small models were seen to train; at 280 one of 8 layers did not.
LEAST_MIB = 400


class Model(torch.nn.Module):
    """Square layers with residual connections."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(layers))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the loss: the mean square of the outputs."""
        for layer in self.layers:
            values = torch.relu(layer(values)) + values
        return values.float().pow(2).mean()


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="on the disk; `disk` and `checkpoint` are made in it"
    )
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument(
        "--layers", type=int, default=64, help="the size of the model (default 64: 896 MiB of states)"
    )
    parser.add_argument(
        "--steps", type=int, default=4, help="the run ends after so many, resumed ones counted"
    )
    parser.add_argument(
        "--limit", type=int, default=0, metavar="MIB", help="default: 0.6 of the model's states"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the folder's checkpoint")
    parser.add_argument("--in-memory", action="store_true", help="nothing on disk: the limit ends the run")
    parser.add_argument("--aio", type=Path, help="what `accel io tune FOLDER` has printed")
    options = parser.parse_args(arguments)
    if not options.in_memory and allowed_bytes(options) >> 20 < LEAST_MIB:
        parser.error(
            f"a limit of {allowed_bytes(options) >> 20} MiB is too low: DeepSpeed's start and buffers do not fit, "
            f"whatever the size. Add --limit {LEAST_MIB}, or leave out --layers: the default size fits"
        )
    return options


def allowed_bytes(options: argparse.Namespace) -> int:
    """Return the memory that the program allows itself."""
    return int(options.limit << 20 or options.width**2 * options.layers * STATE_BYTES * 0.6)


def config(options: argparse.Namespace) -> dict[str, Any]:
    """DeepSpeed's configuration."""
    size = options.width * options.width
    path = str(options.folder / "disk")
    zero: dict[str, Any] = {
        "stage": 3,
        "sub_group_size": 2 * size,
        "stage3_param_persistence_threshold": 0,
        "stage3_prefetch_bucket_size": size,
        "stage3_max_live_parameters": 2 * size,
        "stage3_max_reuse_distance": 0,
        "reduce_bucket_size": 2 * size,
    }
    if not options.in_memory:
        on_disk = {"device": "nvme", "nvme_path": path, "pin_memory": True}
        zero["offload_param"] = {**on_disk, "buffer_count": 5, "buffer_size": size}
        zero["offload_optimizer"] = {**on_disk, "buffer_count": 4}
    aio = {"block_size": 1 << 20, "queue_depth": 32, "intra_op_parallelism": 1}
    return {
        "train_micro_batch_size_per_gpu": 8,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-4}},
        "bf16": {"enabled": True},
        "zero_optimization": zero,
        "aio": json.loads(options.aio.read_text())["aio"] if options.aio else aio,
        "steps_per_print": 10**9,
    }


def prepare(options: argparse.Namespace) -> Clock:
    """Start torch.distributed with one rank, and set the limit."""
    with working("importing DeepSpeed"):
        import deepspeed
        from deepspeed.accelerator import get_accelerator

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    torch.manual_seed(0)
    return_freed_memory()
    shutil.rmtree(options.folder / "disk", ignore_errors=True)
    (options.folder / "disk").mkdir(parents=True)
    deepspeed.init_distributed(
        dist_backend=get_accelerator().communication_backend_name(),
        auto_mpi_discovery=False,
        verbose=False,
        init_method=f"file://{options.folder.resolve()}/disk/store",
        rank=0,
        world_size=1,
    )
    clock = Clock()
    clock.attach(get_accelerator().create_op_builder("AsyncIOBuilder").load().aio_handle)
    states = options.width**2 * options.layers * STATE_BYTES
    allowed = allowed_bytes(options)
    what = limit(allowed)
    print(
        f"states of the model: {states >> 20} MiB; memory for them: {allowed >> 20} MiB (limited by {what})",
        flush=True,
    )
    return clock


def train(options: argparse.Namespace, clock: Clock) -> None:
    """Train, and save at the end."""
    import deepspeed

    made = config(options)
    # Plain lines from here on: a thread's stack would count as memory.
    print("making the model, and its states on the disk …", flush=True)
    with deepspeed.zero.Init(config_dict_or_path=made, dtype=torch.bfloat16):
        model = Model(options.width, options.layers)
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=made)[0]
    saved = str(options.folder / "checkpoint")
    if options.resume:
        resume(engine, options, saved)
    clock.line(0)
    for number in range(engine.global_steps, options.steps):
        start = time.perf_counter()
        loss = step(engine, number, options.width)
        print(f"step {number} loss {loss:.6f} {clock.line(time.perf_counter() - start)}", flush=True)
    # DeepSpeed copies the swapped tensors into the checkpoint, and refuses to do so twice.
    shutil.rmtree(options.folder / "checkpoint" / f"global_step{engine.global_steps}", ignore_errors=True)
    engine.save_checkpoint(saved)
    print(f"saved; peak memory {peak() >> 20} MiB", flush=True)


def step(engine: Any, number: int, width: int) -> float:
    """Take a step on data that follow from its number; returns the loss."""
    random = torch.Generator().manual_seed(number)
    loss = engine(torch.randn(8, width, generator=random).to(engine.device, torch.bfloat16))
    engine.backward(loss)
    engine.step()
    return float(loss.detach())


def resume(engine: Any, options: argparse.Namespace, saved: str) -> None:
    """Go on from a checkpoint.

    DeepSpeed 0.19 reads Adam's states from disk only after a first step has made them, and counts steps from there: so
    a step is taken whose results the checkpoint then replaces, and the count is set.
    """
    step(engine, 0, options.width)
    path, _ = engine.load_checkpoint(saved)
    if path is None:
        raise RuntimeError(f"{saved} has no checkpoint: run without --resume first")
    for state in engine.optimizer.optimizer.state.values():
        state["step"] = engine.global_steps


def main() -> None:
    """Run."""
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_SIZE": "1"}.items():
        os.environ.setdefault(name, value)
    options = parse(sys.argv[1:])
    clock = prepare(options)
    try:
        train(options, clock)
    except (RuntimeError, MemoryError) as error:
        print(f"error: {error!r}", file=sys.stderr, flush=True)
        os._exit(1)  # under the limit there may be no memory for an orderly end


if __name__ == "__main__":
    main()
