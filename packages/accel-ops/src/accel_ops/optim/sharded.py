# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Parameters of FSDP2 and of tensor parallelism: of a DTensor, this rank steps on the part that it holds."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import torch

from accel_ops.errors import InvalidTensors

Row = tuple[torch.Tensor, torch.Tensor, dict[str, Any]]


def local_row(param: torch.Tensor, grad: torch.Tensor, state: dict[str, Any]) -> Row:
    """Return parameter, gradient and states with this rank's part in place of each DTensor.

    A gradient with other placements, as a partial sum, is brought to those of its parameter first. Raises
    InvalidTensors for a parameter that is a partial sum, and where gradient or states are sharded otherwise.
    """
    if type(param) is torch.nn.Parameter or not is_sharded(param):
        return param, grad, state
    sharded: Any = param
    if any(placement.is_partial() for placement in sharded.placements):
        _refuse("a parameter that is a partial sum")
    received: Any = grad
    if not is_sharded(grad) or received.device_mesh != sharded.device_mesh:
        _refuse("a gradient that is not sharded on the mesh of its parameter")
    if received.placements != sharded.placements:
        received = received.redistribute(placements=sharded.placements)
    states = {name: _local_state(name, value, sharded) for name, value in state.items()}
    return _local(sharded), _local(received), states


def is_sharded(tensor: torch.Tensor) -> bool:
    """Return whether it is a DTensor. No program that has one has not imported its module."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def _local_state(name: str, value: Any, param: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not is_sharded(value):
        return value
    state: Any = value
    if state.device_mesh != param.device_mesh or state.placements != param.placements:
        _refuse(f"a state {name} that is sharded otherwise than its parameter")
    return _local(state)


def _local(tensor: Any) -> torch.Tensor:
    local = tensor.to_local()
    # Where its communication goes on, it is a tensor that can be waited for.
    done: torch.Tensor = local.wait() if hasattr(local, "wait") else local
    return done


def _refuse(found: str) -> NoReturn:
    raise InvalidTensors(
        what="the host optimizers cannot take this step",
        found=found,
        expected="DTensors with the mesh and the placements of their parameter",
        do="shard parameters, gradients and states alike, or use torch's own optimizer",
    )
