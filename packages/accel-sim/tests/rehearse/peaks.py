# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a program that is compared with its rehearsal counts: memory, as a rehearsal does. Imports no DeepSpeed."""

import gc

import torch

from accel_sim import simulation


def count() -> None:
    """Count memory as a rehearsal does: by the model of the allocator, and on the host."""
    current = simulation.current()
    assert current is not None
    current.native.count_memory(current.vendor.padding, current.vendor.arena)
    gc.disable()  # garbage is found at other moments in the other process


def peaks() -> dict[str, int]:
    """Return the peaks of this process."""
    current = simulation.current()
    assert current is not None
    stats = torch.accelerator.memory_stats()
    found = {name: stats[f"{name}_bytes.all.peak"] for name in ("requested", "allocated", "reserved")}
    return {**found, "host": sum(current.native.dry_host())}
