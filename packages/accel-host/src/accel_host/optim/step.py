# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the optimizers' steps share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from accel_host.errors import InvalidTensors


def loss_of(closure: Callable[[], Any] | None) -> Any:
    """What the closure gives with gradients on; None without one."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def by_step(
    group: dict[str, Any], state: dict[Any, Any], fresh: Callable[[torch.Tensor], dict[str, Any]]
) -> Iterator[tuple[int, list[torch.Tensor]]]:
    """The group's parameters with gradients by the number of the step that they take now, state made where missing.

    Raises InvalidTensors for a sparse gradient. maximize turns the gradient's sign in the caller.
    """
    parameters: dict[int, list[torch.Tensor]] = {}
    for parameter in group["params"]:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            raise InvalidTensors(
                what="the host optimizers can not take this step",
                found="a sparse gradient",
                expected="dense gradients",
                do="use torch.optim.SparseAdam for this parameter, or sparse=False in its embedding",
            )
        own = state[parameter]
        if not own:
            own.update({"step": torch.tensor(0.0), **fresh(parameter)})
        number = int(own["step"]) + 1
        own["step"].fill_(number)
        parameters.setdefault(number, []).append(parameter)
    yield from parameters.items()


def sign(group: dict[str, Any]) -> float:
    """The factor of the gradients: -1 where the group maximizes."""
    return -1.0 if group.get("maximize") else 1.0


def refuse(option: str) -> InvalidTensors:
    """The error for an option of torch's that the kernels do not have."""
    return InvalidTensors(
        what=f"the host optimizer has no {option}",
        found=f"{option}=True",
        expected=f"{option}=False",
        do=f"leave {option} out, or use torch's own optimizer",
    )
