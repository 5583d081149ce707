# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The base class of the optimizers, and what their steps have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

import torch

from accel_host.errors import InvalidTensors

#: `_foreach_add_` would convert a Python number to a tensor once for each parameter, four times as slow. Step counters
#: are in host memory, whatever the default device is at import.
_ONE = torch.tensor(1.0, device="cpu")


def evaluate(closure: Callable[[], Any] | None) -> Any:
    """Return the closure's result, computed with gradients enabled; None without a closure."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


class HostOptimizer(torch.optim.Optimizer):
    """Base class that raises for options which the kernels lack, wherever they are set."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # torch sets this for `fused=True`; GradScaler would then leave unscaling and skipping to `step`.
        self._step_supports_amp_scaling = False

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Do what torch's method does; raises InvalidTensors (a ValueError) for an option that the kernels lack."""
        _check_options({**self.defaults, **param_group})
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Do what torch's method does; raises InvalidTensors (a ValueError) for an option that the kernels lack."""
        for group in state_dict["param_groups"]:
            _check_options(group)
        super().load_state_dict(state_dict)


class StepGroup(NamedTuple):
    """Parameters of a parameter group whose next step has the same number, with gradients and states."""

    number: int
    params: list[torch.Tensor]
    grads: list[torch.Tensor]
    states: list[dict[str, torch.Tensor]]


def group_by_step(
    group: dict[str, Any],
    state: dict[Any, Any],
    new_states: Callable[[list[torch.Tensor]], list[dict[str, Any]]],
) -> Iterator[StepGroup]:
    """Yield the parameters that have a gradient, grouped by the number of their next step.

    new_states: makes the states of parameters that have none yet.

    The step counters are incremented when the next group is requested, so not for a step that raised. Raises
    InvalidTensors for a sparse gradient.
    """
    rows = [(param, param.grad, state[param]) for param in group["params"] if param.grad is not None]
    for _, grad, _ in rows:
        if grad.is_sparse:
            _raise_sparse()
    new = [row for row in rows if not row[2]]
    if new:
        for (_, _, own), values in zip(new, new_states([param for param, _, _ in new]), strict=True):
            own.update({"step": torch.tensor(0.0), **values})
    by_number: dict[int, list[Any]] = {}
    for row in rows:
        by_number.setdefault(int(row[2]["step"]) + 1, []).append(row)
    for number, same in by_number.items():
        params, grads, states = map(list, zip(*same, strict=True))
        yield StepGroup(number, params, grads, states)
        torch._foreach_add_([own["step"] for own in states], _ONE, alpha=1.0)
        # Makes a later backward() through the values before the step an error, as torch's optimizers do.
        torch.autograd.graph.increment_version([param for param in params if not param.is_inference()])


def grad_sign(group: dict[str, Any]) -> float:
    """Return the factor of the gradients: -1 where the group has `maximize`, else 1."""
    return -1.0 if group.get("maximize") else 1.0


def _raise_sparse() -> NoReturn:
    raise InvalidTensors(
        what="the host optimizers cannot take this step",
        found="a sparse gradient",
        expected="dense gradients",
        do="use torch.optim.SparseAdam for this parameter, or sparse=False in its embedding",
    )


def _check_options(group: dict[str, Any]) -> None:
    for option in ("amsgrad", "differentiable", "capturable"):
        if group.get(option):
            raise InvalidTensors(
                what=f"the host optimizer has no {option}",
                found=f"{option}=True",
                expected=f"{option}=False",
                do=f"leave {option} out, or use torch's own optimizer",
            )
