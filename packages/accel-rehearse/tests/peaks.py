# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a program that is compared with its rehearsal counts: memory, as a rehearsal does. Imports no DeepSpeed."""

import gc
import importlib
import sys
from typing import Any

import torch

from accel_rehearse.native import EXTENSION, enable
from accel_sim import simulation
from accel_sim.ops import steps


def count() -> None:
    """Count memory as a rehearsal does. In a rehearsal, let fused optimizers allocate as those that compute."""
    current = simulation.current()
    assert current is not None
    if EXTENSION.name in sys.modules:
        importlib.reload(steps)
    else:
        enable(current, (sys.maxsize, sys.maxsize))
    gc.disable()  # garbage is found at other moments in the other process


def peaks() -> dict[str, int]:
    """Return the peaks of this process."""
    native: Any = sys.modules[EXTENSION.name]
    stats = torch.accelerator.memory_stats()
    found = {name: stats[f"{name}_bytes.all.peak"] for name in ("requested", "allocated", "reserved")}
    return {**found, "host": sum(native.counts()[0])}
