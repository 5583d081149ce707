# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`python -m accel_testkit.sim.checks features npu`: prints each check and its error as JSON."""

from __future__ import annotations

import importlib
import json
import os
import sys

import torch

from accel_testkit.sim import gaps, vendors
from accel_testkit.sim.checks import Device
from accel_testkit.sim.simulation import activate


def main(what: str, key: str) -> None:
    """Run the checks of that kind in this process, or rank, and write the results."""
    simulation = activate(key)
    count = 1 if simulation.vendor.one_device else simulation.devices
    device = Device(key, simulation.module, count, simulation.settings.memory)
    if what == "collectives":
        results = _collectives(device)
    else:
        results = {}
        for name in ("graphs", "captures") if what == "graphs" else ("tensors", "training"):
            results.update(importlib.import_module(f"accel_testkit.sim.checks.{name}").CHECKS.run(device))
    if os.environ.get("RANK", "0") == "0":
        sys.stdout.write(json.dumps({"checks": results, "gaps": gaps.reasons(key)}) + "\n")


def _collectives(device: Device) -> dict[str, str]:
    import torch.distributed as dist

    from accel_testkit.sim.checks.collectives import CHECKS

    dist.init_process_group(vendors.find(device.type).collectives)
    torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]) % device.count)
    results = CHECKS.run(device)
    dist.destroy_process_group()
    return results


if __name__ == "__main__":
    main(*sys.argv[1:])
