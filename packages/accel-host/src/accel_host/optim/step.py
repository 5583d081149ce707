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


class HostOptimizer(torch.optim.Optimizer):
    """Refuses, wherever a group's options come from, what the kernels do not have."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # torch sets it for `fused`: GradScaler would then leave the unscaling, and the skipping, to `step`.
        self._step_supports_amp_scaling = False

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """torch's; raises InvalidTensors (a ValueError) for an option that the kernels do not have."""
        _refuse_options({**self.defaults, **param_group})
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """torch's; raises InvalidTensors (a ValueError) for an option that the kernels do not have."""
        for group in state_dict["param_groups"]:
            _refuse_options(group)
        super().load_state_dict(state_dict)


def by_step(
    group: dict[str, Any], state: dict[Any, Any], fresh: Callable[[list[torch.Tensor]], list[dict[str, Any]]]
) -> Iterator[tuple[int, list[torch.Tensor]]]:
    """The group's parameters with gradients by the number of the step that they take now, state made where missing.

    The step counts when the next ones are asked for: not where it was refused. Raises InvalidTensors for a sparse
    gradient. maximize turns the gradient's sign in the caller.
    """
    parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
    for parameter in parameters:
        _refuse_sparse(parameter.grad)
    new = [parameter for parameter in parameters if not state[parameter]]
    for parameter, values in zip(new, fresh(new), strict=True):
        state[parameter].update({"step": torch.tensor(0.0), **values})
    by_number: dict[int, list[torch.Tensor]] = {}
    for parameter in parameters:
        by_number.setdefault(int(state[parameter]["step"]) + 1, []).append(parameter)
    for number, members in by_number.items():
        yield number, members
        for parameter in members:
            state[parameter]["step"].fill_(number)
        # A second backward() through the values from before the step is an error, as after torch's own steps.
        torch.autograd.graph.increment_version([p for p in members if not p.is_inference()])


def sign(group: dict[str, Any]) -> float:
    """The factor of the gradients: -1 where the group maximizes."""
    return -1.0 if group.get("maximize") else 1.0


def _refuse_sparse(grad: torch.Tensor) -> None:
    if grad.is_sparse:
        raise InvalidTensors(
            what="the host optimizers can not take this step",
            found="a sparse gradient",
            expected="dense gradients",
            do="use torch.optim.SparseAdam for this parameter, or sparse=False in its embedding",
        )


def _refuse_options(group: dict[str, Any]) -> None:
    for option in ("amsgrad", "differentiable", "capturable"):
        if group.get(option):
            raise InvalidTensors(
                what=f"the host optimizer has no {option}",
                found=f"{option}=True",
                expected=f"{option}=False",
                do=f"leave {option} out, or use torch's own optimizer",
            )
