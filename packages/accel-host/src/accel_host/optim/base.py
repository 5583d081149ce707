# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The base class of the optimizers, and what their steps have in common."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

import torch
from torch._compile import _disable_dynamo

from accel_host import fast, library
from accel_host.errors import InvalidTensors
from accel_host.optim import sharded
from accel_host.optim.sharded import Row

#: `_foreach_add_` would convert a Python number to a tensor once for each parameter, four times as slow. Step counters
#: are in host memory, whatever the default device is at import.
_ONE = torch.tensor(1.0, device="cpu")
_IS_SPARSE = operator.attrgetter("is_sparse")


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

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step in place; returns the closure's result. Raises what the functions of `kernels` do."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        _uncompiled(self)
        return loss

    def _update(self) -> None:
        """Take a step on every parameter group."""
        raise NotImplementedError


@_disable_dynamo
def _uncompiled(optimizer: HostOptimizer) -> None:
    """Take the step outside of the graphs of torch.compile, which would compile it again for each step number."""
    optimizer._update()


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
    rows = [(param, grad, state[param]) for param in group["params"] if (grad := param.grad) is not None]
    if any(map(_IS_SPARSE, [grad for _, grad, _ in rows])):
        _raise_sparse()
    new = [row for row in rows if not row[2]]
    if new:
        for (_, _, own), values in zip(new, new_states([param for param, _, _ in new]), strict=True):
            own.update({"step": torch.tensor(0.0, device="cpu"), **values})
    advance = fast.advance(library.load().functions)
    for whole, same in _same_step(rows, advance):
        steps = [own["step"] for own in same.states]
        yield same
        if advance(steps, 1.0) is None:
            torch._foreach_add_(steps, _ONE, alpha=1.0)
        # Makes a later backward() through the values before the step an error, as torch's optimizers do.
        try:
            torch.autograd.graph.increment_version(whole)
        except RuntimeError:  # inference tensors have no version
            torch.autograd.graph.increment_version([param for param in whole if not param.is_inference()])


def _same_step(rows: list[Row], advance: Any) -> Iterator[tuple[list[torch.Tensor], StepGroup]]:
    """Yield the rows of each step number: the parameters as they are, and the operands of the step."""
    if not rows:
        return
    whole, grads, states = map(list, zip(*rows, strict=True))
    plain = set(map(type, whole)) == {torch.nn.Parameter}
    common = advance([own["step"] for own in states], 0.0) if plain else None
    if common is not None:  # nearly always
        yield whole, StepGroup(int(common) + 1, whole, grads, states)
        return
    by_number: dict[int, list[Row]] = {}
    for row in rows:
        by_number.setdefault(int(row[2]["step"]) + 1, []).append(row)
    for number, same in by_number.items():
        local = map(list, zip(*(sharded.local_row(*row) for row in same), strict=True))
        yield [row[0] for row in same], StepGroup(number, *local)


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
