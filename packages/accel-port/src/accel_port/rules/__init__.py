# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The rules, in the order in which they are asked about a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accel_port.rules import comparisons, devices, other, placement, runtime, tensors, training
from accel_port.rules.base import Context, Found, Rule

RULES: tuple[Rule, ...] = (
    devices.Ternary(), devices.MapLocation(), tensors.TypedTensor(),
    training.Autocast(), training.DataParallel(), training.StreamsAndGraphs(), training.Profiler(),
    training.PinnedMemory(), comparisons.DeviceComparison(), placement.CudaMethod(), comparisons.IsCuda(),
    placement.IntegerDevice(), runtime.Availability(), runtime.CurrentDevice(), runtime.Seed(), runtime.DeviceCount(),
    runtime.DeviceProperties(), runtime.DeviceContext(), devices.DeviceArgument(), training.NcclBackend(),
    other.Environment(), other.ErrorText(), other.CudaOnly(), runtime.RuntimeFunction(),
)  # fmt: skip

#: For each type of nodes the rules that look at it, and their methods.
BY_NODE: dict[str, list[tuple[Rule, Callable[[Any, Context], Found]]]] = {}
for _rule in RULES:
    for _method in (name for name in dir(_rule) if name.startswith("visit_")):
        BY_NODE.setdefault(_method.removeprefix("visit_"), []).append((_rule, getattr(_rule, _method)))
