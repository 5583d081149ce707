# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Simulated accelerators: real PyTorch device types whose memory is the host's.

`activate("npu")` simulates one in this process; `environment("npu")` is an environment in which child processes have
one, under the real import names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_sim.activation import activate
    from accel_sim.simulation import current
    from accel_sim.stub_packages import environment

__all__ = ["activate", "current", "environment"]


#: Where each name is defined: importing this package imports neither torch nor a compiler.
_HOMES = {
    "activate": "activation",
    "current": "simulation",
    "environment": "stub_packages",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "activate":
        importlib.import_module("torch")  # its entry point may import `activation`, too
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
