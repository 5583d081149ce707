# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What stands on the op, each in a process of its own: `python -m benchmarks.aio_users KIND ARGUMENTS` prints JSON.

load                           seconds of our builder's `load`, and events of Python that start a process
writer FOLDER MIB ROUNDS       FastFileWriter on our op, and torch.save with fsync, in turn
training FOLDER MILLIONS STEPS OP   ZeRO-Infinity with parameters and optimizer states on disk; OP: ours or upstream
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WIDTH = 1024


def load() -> dict[str, float]:
    """The first op of a process: the library is found and opened, too."""
    import torch  # noqa: F401  - what every program has imported before

    from accel_ops.op_builder import AsyncIOBuilder

    started = []
    sys.addaudithook(lambda event, _: started.append(event) if event in _STARTS else None)
    begin = time.perf_counter()
    AsyncIOBuilder().load()
    return {"ms": 1e3 * (time.perf_counter() - begin), "processes": len(started)}


_STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system")


def writer(folder: str, mib: str, rounds: str) -> dict[str, list[float]]:
    """GB/s of both ways, one after the other."""
    import torch
    from deepspeed.io import FastFileWriter, FastFileWriterConfig
    from deepspeed.ops.op_builder import AsyncIOBuilder

    handle = AsyncIOBuilder().load().aio_handle(1 << 20, 32, False, True, 1)
    pinned = handle.new_cpu_locked_tensor(64 << 20, torch.empty(0, dtype=torch.uint8))
    parts = max(1, int(mib) // 32)
    state = {str(number): torch.full((8 << 20,), float(number)) for number in range(parts)}
    size = sum(tensor.nbytes for tensor in state.values()) / 1e9
    seen: dict[str, list[float]] = {"FastFileWriter": [], "torch.save": []}
    for _ in range(int(rounds)):
        for name, rates in seen.items():
            path = Path(folder, name)
            path.unlink(missing_ok=True)
            begin = time.perf_counter()
            if name == "torch.save":
                with path.open("wb") as file:
                    torch.save(state, file)
                    file.flush()
                    os.fsync(file.fileno())
            else:
                fast = FastFileWriter(str(path), FastFileWriterConfig(handle, pinned, double_buffer=True))
                torch.save(state, fast)
                fast.close()
            rates.append(size / (time.perf_counter() - begin))
    return seen


def training(folder: str, millions: str, steps: str, op: str) -> dict[str, Any]:
    """Seconds of iterations, and losses."""
    import deepspeed
    import torch
    from deepspeed.ops.op_builder import cpu
    from deepspeed.runtime.swap_tensor import partitioned_optimizer_swapper as states
    from deepspeed.runtime.swap_tensor import partitioned_param_swapper as params
    from deepspeed.runtime.swap_tensor import pipelined_optimizer_swapper as pipelined

    if op == "upstream":
        for module in (states, params, pipelined):
            module.AsyncIOBuilder = cpu.AsyncIOBuilder
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    torch.manual_seed(0)
    made = _config(folder)
    layers = max(2, round(int(millions) * 1e6 / WIDTH**2))
    deepspeed.init_distributed(
        dist_backend="gloo", auto_mpi_discovery=False, verbose=False, init_method=f"file://{folder}/store",
        rank=0, world_size=1,
    )  # fmt: skip
    with deepspeed.zero.Init(config_dict_or_path=made, dtype=torch.bfloat16):
        model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=made)[0]
    seconds, losses = [], []
    for step in range(int(steps) + 1):
        values = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(step)).to(torch.bfloat16)
        begin = time.perf_counter()
        loss = engine(values).float().pow(2).mean()
        engine.backward(loss)
        engine.step()
        seconds.append(time.perf_counter() - begin)
        losses.append(float(loss.detach()))
    handle = type(params.AsyncIOBuilder().load().aio_handle()).__module__
    return {"seconds": seconds[1:], "losses": losses, "handle": handle}


def _config(folder: str) -> dict[str, Any]:
    nvme = {"device": "nvme", "nvme_path": folder, "pin_memory": True}
    return {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3}},
        "bf16": {"enabled": True},
        "zero_optimization": {
            "stage": 3,
            "sub_group_size": 8 * WIDTH * WIDTH,
            "stage3_param_persistence_threshold": 0,
            "stage3_prefetch_bucket_size": WIDTH * WIDTH,
            "offload_optimizer": {**nvme, "buffer_count": 5},
            "offload_param": {**nvme, "buffer_count": 8, "buffer_size": WIDTH * WIDTH},
        },
        "aio": {
            "block_size": 1 << 20, "queue_depth": 32, "intra_op_parallelism": 1, "single_submit": False,
            "overlap_events": True,
        },
        "steps_per_print": 10**9,
    }  # fmt: skip


def main() -> None:
    """Run the kind that the arguments name."""
    kinds: dict[str, Callable[..., object]] = {"load": load, "writer": writer, "training": training}
    report = kinds[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(report), flush=True)
    os._exit(0)  # torch now and then aborts over threads of gloo


if __name__ == "__main__":
    main()
