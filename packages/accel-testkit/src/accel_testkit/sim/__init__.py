# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Simulated accelerators: real PyTorch device types whose memory is the host's.

`activate("npu")` gives this process one; `environment("npu")` gives child processes one, under the real
import names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_testkit.sim.simulation import activate, current
    from accel_testkit.sim.standins import environment

__all__ = ["activate", "current", "environment"]


def __getattr__(name: str) -> Any:
    if name in ("activate", "current"):
        from accel_testkit.sim import simulation

        return getattr(simulation, name)
    if name == "environment":
        from accel_testkit.sim import standins

        return standins.environment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
