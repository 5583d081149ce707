# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`python -m accel_sim.checks features npu`: prints each check and its error as JSON."""

from __future__ import annotations

import importlib
import json
import os
import sys
from datetime import timedelta
from typing import Any

import torch

from accel_sim import gaps, vendors
from accel_sim.activation import activate
from accel_sim.checks import Device

#: Guards against a hang.
_TIMEOUT = timedelta(seconds=60)
_CHECKS = {
    "features": ("tensors", "rare_tensors", "training"),
    "graphs": ("graphs", "graph_captures"),
    "fused": ("fused_{}",),
}


def main(what: str, key: str) -> None:
    """Run the checks of that kind in this process, or rank, and write the results."""
    simulation = activate(key)
    count = 1 if simulation.vendor.one_device else simulation.devices
    device = Device(key, simulation.module, count, simulation.settings.memory)
    if what == "collectives":
        results = _collectives(device)
    else:
        results = _run(tuple(name.format(key) for name in _CHECKS[what]), device)
    if os.environ.get("RANK", "0") == "0":
        sys.stdout.write(json.dumps({"checks": results, "gaps": gaps.reasons(key)}) + "\n")


def _run(modules: tuple[str, ...], device: Device) -> dict[str, str]:
    results: dict[str, str] = {}
    for name in modules:
        results.update(importlib.import_module(f"accel_sim.checks.{name}").CHECKS.run(device))
    return results


def _collectives(device: Device) -> dict[str, str]:
    import torch.distributed as dist

    dist.init_process_group(vendors.find(device.type).collectives, timeout=_TIMEOUT)
    torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]) % device.count)
    results = _of_all_ranks(_run(("collectives", "async_collectives"), device))
    dist.destroy_process_group()
    return results


def _of_all_ranks(mine: dict[str, str]) -> dict[str, str]:
    """Return on rank 0 the first error of each check on any rank; exchanged through the store, not by collectives."""
    import torch.distributed as dist

    rendezvous: Any = dist.distributed_c10d
    store = rendezvous._get_default_store()
    store.set(f"checks of {dist.get_rank()}", json.dumps(mine))
    if dist.get_rank():
        store.wait(["checks are read"])
        return mine
    answers = [json.loads(store.get(f"checks of {rank}")) for rank in range(dist.get_world_size())]
    store.set("checks are read", "1")
    return {name: next((a[name] for a in answers if a[name]), "") for name in mine}


if __name__ == "__main__":
    main(*sys.argv[1:])
