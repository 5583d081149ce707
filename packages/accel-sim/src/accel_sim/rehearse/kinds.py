# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kinds of memory: what optimizers and models hold is known, the rest follows from where it was made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

import torch

from accel_sim.rehearse.phases import BACKWARD, FORWARD, INIT, STEP, Phases
from accel_sim.rehearse.record import KINDS

#: Labels of the ledger: 0 is unknown, the others are indices of KINDS plus one.
_PARAMETERS, _GRADIENTS, _STATES, _MASTER, _ACTIVATIONS, _BUCKETS, _TEMPORARIES, _OTHER = range(
    1, len(KINDS) + 1
)
#: Parts of the names of a ZeRO optimizer's attributes, in the order in which they decide.
_ATTRIBUTES = (
    (("bucket",), _BUCKETS),
    (("grad_partitions", "averaged_gradients"), _GRADIENTS),
    (("buffer",), _BUCKETS),
    (("fp32", "master", "single_partition"), _MASTER),
    (("grad",), _GRADIENTS),
    (("bit16", "fp16", "bf16", "lp_param"), _PARAMETERS),
)
#: Containers within containers that are searched.
_DEPTH = 4


class Labels:
    """Labels the memory that models, optimizers and engines hold, after each phase."""

    def __init__(self, phases: Phases, device: str) -> None:
        self._phases, self._device = phases, device
        self.engines: WeakSet[Any] = WeakSet()
        phases.ends.append(self._after)

    def _after(self, phase: int) -> None:
        if phase == FORWARD and self._phases.steps:
            return
        for optimizer in list(self._phases.optimizers):
            self._states(optimizer)
        for engine in list(self.engines):
            self._zero(getattr(engine, "optimizer", None))
        for root in list(self._phases.roots):
            self._model(root)

    def _model(self, root: torch.nn.Module) -> None:
        for param in root.parameters():
            self._label(param, _PARAMETERS)
            self._label(getattr(param, "ds_tensor", None), _PARAMETERS)
            self._label(param.grad, _GRADIENTS)

    def _states(self, optimizer: Any) -> None:
        for state in list(getattr(optimizer, "state", {}).values()):
            self._each(state, _STATES)

    def _zero(self, optimizer: Any) -> None:
        """Label what an optimizer of DeepSpeed holds, by the names of its attributes."""
        for name, value in list(vars(optimizer).items() if hasattr(optimizer, "__dict__") else ()):
            for parts, kind in _ATTRIBUTES:
                if any(part in name.lower() for part in parts):
                    self._each(value, kind)
                    break
        self._states(getattr(optimizer, "optimizer", None) or optimizer)

    def _each(self, value: Any, kind: int, depth: int = 0) -> None:
        if isinstance(value, torch.Tensor):
            self._label(value, kind)
        elif depth < _DEPTH and isinstance(value, dict):
            self._every(value.values(), kind, depth)
        elif depth < _DEPTH and isinstance(value, (list, tuple)):
            self._every(value, kind, depth)
        elif depth < _DEPTH and hasattr(value, "buffer"):  # IPGBucket
            self._each(value.buffer, kind, depth + 1)

    def _every(self, values: Iterable[Any], kind: int, depth: int) -> None:
        for value in list(values):
            self._each(value, kind, depth + 1)

    def _label(self, tensor: Any, kind: int) -> None:
        if tensor is None:
            return
        local = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
        if local.device.type == self._device and local.numel():
            self._phases.native.dry_label(local.data, kind)


def kind_of(row: tuple[Any, ...], label: int, learned: dict[tuple[Any, ...], int]) -> str:
    """Return the kind of memory that was made at a place. learned: labels of memory from there, once it was known."""
    label = label or learned.get(row[1:], 0)
    if label:
        return KINDS[label - 1]
    phase, _module, library, _program, node = row
    if any(part in library for part in ("partition_parameters", "param_coordinator", "_fsdp_collectives")):
        return KINDS[_PARAMETERS - 1]
    if phase == INIT and not any(
        part in library for part in ("runtime/zero", "runtime/fp16", "runtime/bf16")
    ):
        return KINDS[
            _PARAMETERS - 1
        ]  # a model that was moved to the device, before it was flattened or partitioned
    if phase == FORWARD or (phase == BACKWARD and "checkpoint" in library):
        return KINDS[_ACTIVATIONS - 1]
    if phase == BACKWARD and any(part in library for part in ("zero/stage", "stage_1_and_2", "stage3")):
        return KINDS[_BUCKETS - 1]
    if phase == BACKWARD and "AccumulateGrad" in node:
        return KINDS[_GRADIENTS - 1]
    return KINDS[(_OTHER if phase not in (INIT, BACKWARD, STEP) else _TEMPORARIES) - 1]


def learn(rows: Iterable[tuple[tuple[Any, ...], int]]) -> dict[tuple[Any, ...], int]:
    """Return the label of each place all of whose labelled memory has the same one."""
    found: dict[tuple[Any, ...], int] = {}
    for row, label in rows:
        if label and found.setdefault(row[1:], label) != label:
            found[row[1:]] = 0
    return found
