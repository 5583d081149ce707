# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The extension in C++ by which a simulated device counts memory and computes small tensors only."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from accel_sim import build
from accel_sim.simulation import Simulation

_SOURCES = Path(__file__).parent / "csrc"
_UNITS = {"memory, shapes and groups": sorted(path.stem for path in _SOURCES.glob("*.cpp"))}
EXTENSION = build.Extension("accel_rehearse_native", "the dry run", "accel rehearse", _SOURCES, _UNITS)


#: Variables by which a program chooses CUDA's segments that grow, or those of a copy of its allocator.
_ALLOCATOR = (
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NPU_ALLOC_CONF",
    "PYTORCH_MLU_ALLOC_CONF",
)


def grows() -> bool:
    """Return whether the program chooses segments that grow."""
    texts = (os.environ.get(name, "") for name in _ALLOCATOR)
    return any("expandable_segments:true" in text.lower() for text in texts)


def enable(simulation: Simulation, limits: tuple[int, int], reserve: int = 0) -> Any:
    """Make the device of this process a dry one; return the extension.

    limits: bytes of the largest tensors that are computed, on the device and on the host.
    reserve: bytes of the device that the program cannot have.
    """
    from accel_sim import activation  # imports torch

    native = activation.load(EXTENSION)
    vendor = simulation.vendor
    simulation.native.model_memory(reserve, vendor.padding, vendor.arena or grows())
    native.enable(simulation.native.hooks, *limits)
    return native


# python -m accel_rehearse.native FOLDER: a library for the wheel, as hatch_build.py wants it.
if __name__ == "__main__":
    build.put(EXTENSION, Path(sys.argv[1]))
