# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""all_reduce between two ranks of this host."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from accel_testkit.bench.stock import own_op
from accel_testkit.suite import launch, target
from accel_testkit.suite.launch import Launcher
from accel_testkit.timing import medians

SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
_RANKS, _ROUNDS = 2, 31
#: Seconds for the rounds of one size, so that the whole takes a few minutes.
_LIMIT = 15.0


def measure(build: bool, disk: Path) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yield (what, size, seconds by contender).

    build: compile DeepSpeed's own op where it is not. disk: a folder on the disk to measure.
    """
    op, _ = own_op("ShareMemCommBuilder", build=build)  # compiled here: the ranks have a time limit
    with tempfile.TemporaryDirectory(prefix="accel-bench-") as folder:
        launcher = Launcher(target.named("cpu", ""), Path(folder))
        first = launcher.run(__name__, _RANKS, {"upstream": op is not None})[0]
    if first.get("error"):
        raise RuntimeError(first["error"])
    by_ranks = {"dist.all_reduce": ("ours", "torch"), "inference_all_reduce": ("our op", "DeepSpeed")}
    for what, (ours, beside) in by_ranks.items():
        for size, found in first["seconds"].items():
            number = int(size)
            shown = f"{number >> 20} MiB" if number >= 1 << 20 else f"{number >> 10} KiB"
            seconds = {"ours": found[ours], "limit": found["copy"]}
            yield f"{what}, 2 ranks", shown, seconds | {key: found[key] for key in (beside,) if key in found}


def work(accelerator: Any, answer: dict[str, Any], folder: Path) -> None:
    """Be one rank: put the median seconds of each size and contender into the answer."""
    torch.set_num_threads(1)
    ours = accelerator.create_op_builder("ShareMemCommBuilder").load()
    gloo = dist.new_group(backend="gloo")
    upstreams = upstreams_op(dist.get_world_size()) if launch.order(folder)["upstream"] else None
    answer["seconds"] = {}
    for size in SIZES:
        tensor = torch.ones(size // 4)
        other = torch.empty_like(tensor)
        # Sums grow; infinite ones are as fast.
        calls: dict[str, Callable[[], Any]] = {
            "ours": partial(dist.all_reduce, tensor),
            "torch": partial(dist.all_reduce, tensor, group=gloo),
            "our op": partial(ours.inference_all_reduce_, tensor),
            "copy": partial(other.copy_, tensor),
        }
        if upstreams is not None:
            calls["DeepSpeed"] = partial(upstreams, tensor)
        after_barrier(calls, 3)
        taken = after_barrier(calls, _ROUNDS)
        answer["seconds"][str(size)] = medians(taken)


def upstreams_op(ranks: int) -> Callable[[torch.Tensor], Any] | None:
    """Return DeepSpeed's op of its own CPU builder; None in all ranks where one cannot use it."""
    os.environ["LOCAL_SIZE"] = str(ranks)
    op, _ = own_op("ShareMemCommBuilder")
    if op is not None:
        op.initialize(ranks, dist.get_rank())
    usable = torch.tensor([int(op is not None and op.vector_kernel_level() >= 1)])
    dist.all_reduce(usable, dist.ReduceOp.MIN)
    return (lambda tensor: torch.ops.deepspeed.inference_all_reduce_(tensor)) if usable.item() else None


def after_barrier(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each call, after a barrier, in each round; in fewer once they take too long."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    began = time.perf_counter()
    for _ in range(rounds):
        for name, call in calls.items():
            dist.barrier()
            begin = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - begin)
        over = torch.tensor([int(time.perf_counter() - began > _LIMIT)])
        dist.broadcast(over, 0)
        if over.item():
            break
    return taken
