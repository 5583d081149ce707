# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Process groups of any size in one process: their other ranks do not exist (csrc/dry_collectives.cpp)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from accel_sim import activation
from accel_sim.simulation import Simulation


def install(simulation: Simulation, rank: int, ranks: int) -> None:
    """Let torch.distributed make groups of `ranks` ranks, of which this process is one."""
    native, name = simulation.native, simulation.vendor.collectives

    def meet(_url: str, _timeout: Any = None, **_options: Any) -> Iterator[tuple[Any, int, int]]:
        store: Any = vars(dist)["HashStore"]
        yield store(), rank, ranks

    handlers = sys.modules["torch.distributed.rendezvous"].__dict__["_rendezvous_handlers"]
    for scheme in handlers:
        handlers[scheme] = meet
    distributed_c10d.__dict__["_store_based_barrier"] = lambda *_arguments, **_options: None
    make: Any = activation
    make._backend = lambda _simulation, _store, rank, size, _timeout: native.dry_backend(rank, size, name)

    class Gloo(type):
        def __instancecheck__(cls, value: object) -> bool:
            return getattr(value, "name", lambda: "")() == "gloo"

        def __call__(cls, _store: Any, rank: int, size: int, *_arguments: Any, **_options: Any) -> Any:
            return native.dry_backend(rank, size, "gloo")

    # torch sets the ranks of a group there, on gloo's.
    backend: Any = vars(torch._C._distributed_c10d)["Backend"]
    backend.options = property(lambda _backend: SimpleNamespace())
    options = getattr(getattr(dist, "ProcessGroupGloo", None), "_Options", object)
    group = Gloo("ProcessGroupGloo", (), {"_Options": options})
    for module in (dist, distributed_c10d):
        module.__dict__["ProcessGroupGloo"] = group


def members() -> dict[str, tuple[int, ...]]:
    """Return the global ranks of each group, by its name."""
    world: Any = distributed_c10d._world
    return {
        str(name): tuple(sorted(world.pg_group_ranks.get(group, {}), key=world.pg_group_ranks[group].get))
        for group, name in list(world.pg_names.items())
        if group in world.pg_group_ranks
    }


def text(ranks: tuple[int, ...], world: int) -> str:
    """Return how a report calls a group: `world`, `ranks 0-7`, `ranks 0, 8, … 56`."""
    if len(ranks) == world:
        return "world"
    if len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]}-{ranks[-1]}"
    if len(ranks) > 4:
        return f"ranks {ranks[0]}, {ranks[1]}, … {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}" if ranks else "?"


def peers(channels: list[str], rank: int) -> list[int]:
    """Return the global ranks that this one sent to, by the names of the channels in its record."""
    known, found = members(), set()
    for channel in channels:
        words = channel.split()
        if words[0] == "send" and words[1] in known:
            found.add(known[words[1]][int(words[5])])
    return sorted(found - {rank})


def experts(rank: int) -> list[int]:
    """Return the other global ranks among which DeepSpeed divides the experts that are here."""
    module = sys.modules.get("deepspeed.utils.groups")
    made: dict[str, Any] = getattr(module, "_EXPERT_PARALLEL_GROUP", None) or {}
    found = {each for group in made.values() for each in distributed_c10d.get_process_group_ranks(group)}
    return sorted(found - {rank})
