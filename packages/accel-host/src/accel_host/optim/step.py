# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the optimizers' steps share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

import torch

from accel_host.errors import InvalidTensors

#: A number would be made a tensor for each parameter anew: four times as slow. Steps lie in host memory, whatever
#: the default device is when this is imported.
_ONE = torch.tensor(1.0, device="cpu")


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


class Members(NamedTuple):
    """Parameters of a group that take the step of the same number, each with its gradient and state."""

    number: int
    params: list[torch.Tensor]
    grads: list[torch.Tensor]
    states: list[dict[str, torch.Tensor]]


def by_step(
    group: dict[str, Any], state: dict[Any, Any], fresh: Callable[[list[torch.Tensor]], list[dict[str, Any]]]
) -> Iterator[Members]:
    """The group's parameters with gradients by the number of the step that they take now, state made where missing.

    The step counts when the next ones are asked for: not where it was refused. Raises InvalidTensors for a sparse
    gradient. maximize turns the gradient's sign in the caller.
    """
    rows = [(param, param.grad, state[param]) for param in group["params"] if param.grad is not None]
    for _, grad, _ in rows:
        if grad.is_sparse:
            _refuse_sparse()
    new = [row for row in rows if not row[2]]
    if new:
        for (_, _, own), values in zip(new, fresh([param for param, _, _ in new]), strict=True):
            own.update({"step": torch.tensor(0.0), **values})
    by_number: dict[int, list[Any]] = {}
    for row in rows:
        by_number.setdefault(int(row[2]["step"]) + 1, []).append(row)
    for number, alike in by_number.items():
        params, grads, states = map(list, zip(*alike, strict=True))
        yield Members(number, params, grads, states)
        torch._foreach_add_([own["step"] for own in states], _ONE, alpha=1.0)
        # A second backward() through the values from before the step is an error, as after torch's own steps.
        torch.autograd.graph.increment_version([param for param in params if not param.is_inference()])


def sign(group: dict[str, Any]) -> float:
    """The factor of the gradients: -1 where the group maximizes."""
    return -1.0 if group.get("maximize") else 1.0


def _refuse_sparse() -> NoReturn:
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
