# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The rules, in the order in which they are asked about a node."""

from __future__ import annotations

import ast
from typing import Any

from accel_port.rules import comparisons, devices, other, placement, runtime, tensors, training
from accel_port.rules.base import Rule

RULES: tuple[Rule[Any], ...] = (
    devices.Ternary(),
    devices.MapLocation(),
    tensors.TypedTensor(),
    training.Autocast(),
    training.DataParallel(),
    training.StreamsAndGraphs(),
    training.Profiler(),
    training.PinnedMemory(),
    comparisons.Comparison(),
    placement.CudaMethod(),
    comparisons.IsCuda(),
    placement.IntegerDevice(),
    runtime.Availability(),
    runtime.CurrentDevice(),
    runtime.Seed(),
    runtime.DeviceCount(),
    runtime.Properties(),
    runtime.DeviceContext(),
    devices.DeviceArgument(),
    training.Backend(),
    other.Environment(),
    other.ErrorText(),
    other.CudaOnly(),
    runtime.RuntimeFunction(),
)

BY_NODE: dict[type[ast.AST], list[Rule[Any]]] = {}
for _rule in RULES:
    for _type in _rule.nodes:
        BY_NODE.setdefault(_type, []).append(_rule)
