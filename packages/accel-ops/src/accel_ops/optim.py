# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch optimizers on the host kernels, for models in host memory. DeepSpeed is not needed.

AdamW and Adagrad are subclasses of torch's own with another `step`: options are the same, and state dicts can be
exchanged in both directions. Of a DTensor, as FSDP2 and tensor parallelism have it, a rank steps on the part it holds.
"""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

import torch
from torch._compile import _disable_dynamo

from accel_ops.errors import InvalidTensors
from accel_ops.host import library
from accel_ops.optimizers import cpu_steps

__all__ = ["Adagrad", "AdamW", "Lion"]

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
        f"the host optimizers cannot take this step: {found}; expected DTensors with the mesh and the "
        "placements of their parameter",
        do="shard parameters, gradients and states alike, or use torch's own optimizer",
    )


#: `_foreach_add_` would convert a Python number to a tensor once for each parameter, four times as slow. Step counters
#: are in host memory, whatever the default device is at import.
_ONE = torch.tensor(1.0, device="cpu")
_GRAD, _STEP = operator.attrgetter("grad"), operator.itemgetter("step")


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
        """Take one step in place; returns the closure's result. Raises what the functions of `cpu_steps` do."""
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
    try:
        optimizer._update()
    except InvalidTensors:
        grads = [param.grad for group in optimizer.param_groups for param in group["params"]]
        if any(grad is not None and grad.is_sparse for grad in grads):
            _raise_sparse()
        raise


class StepGroup(NamedTuple):
    """Parameters of a parameter group whose next step has the same number, with gradients and states."""

    number: int
    params: list[torch.Tensor]
    grads: list[torch.Tensor]
    states: list[dict[str, torch.Tensor]]


def group_by_step(
    optimizer: HostOptimizer,
    group: dict[str, Any],
    new_states: Callable[[list[torch.Tensor]], list[dict[str, Any]]],
) -> Iterator[StepGroup]:
    """Yield the parameters of a parameter group that have a gradient, grouped by the number of their next step.

    new_states: makes the states of parameters that have none yet.

    The step counters are incremented when the next group is requested, so not for a step that raised. Raises
    InvalidTensors for a sparse gradient, or lets the kernel raise it.
    """
    advance = library.load().module.advance
    usual = _usual_rows(optimizer, group, advance)
    groups = [usual] if usual else _same_step(_rows(group, optimizer.state, new_states), advance)
    for whole, same, steps in groups:
        yield same
        if advance(steps, 1.0) is None:
            torch._foreach_add_(steps, _ONE, alpha=1.0)
        # Makes a later backward() through the values before the step an error, as torch's optimizers do.
        try:
            torch.autograd.graph.increment_version(whole)
        except RuntimeError:  # inference tensors have no version
            torch.autograd.graph.increment_version([param for param in whole if not param.is_inference()])


#: Parameters as they are, the operands of their step, and their step counters.
_Rows = tuple[list[torch.Tensor], StepGroup, list[torch.Tensor]]


def _usual_rows(optimizer: HostOptimizer, group: dict[str, Any], advance: Any) -> _Rows | None:
    """Return a group of plain parameters that all have a gradient and the same number of steps; None for any other.

    The states are taken in the order in which torch has added them, that of the groups, if the keys confirm it: looking
    up hundreds of parameters takes as long as a third of their step does.
    """
    params, groups = group["params"], optimizer.param_groups
    begin = sum(len(other["params"]) for other in itertools.takewhile(lambda each: each is not group, groups))
    entries = list(itertools.islice(optimizer.state.items(), begin, begin + len(params)))
    if not entries or len(entries) != len(params):
        return None
    keys, states = map(list, zip(*entries, strict=True))
    grads = list(map(_GRAD, params))
    if (
        not all(map(operator.is_, keys, params))
        or set(map(type, params)) != {torch.nn.Parameter}
        or set(map(type, grads)) != {torch.Tensor}
        or not all(states)
    ):
        return None
    steps = list(map(_STEP, states))
    common = advance(steps, 0.0)
    return None if common is None else (params, StepGroup(int(common) + 1, params, grads, states), steps)


def _rows(
    group: dict[str, Any],
    state: dict[Any, Any],
    new_states: Callable[[list[torch.Tensor]], list[dict[str, Any]]],
) -> list[Row]:
    """Return parameters that have a gradient, with states; raises InvalidTensors for a sparse gradient."""
    rows = [(param, grad, state[param]) for param in group["params"] if (grad := param.grad) is not None]
    if any(grad.is_sparse for _, grad, _ in rows):
        _raise_sparse()
    new = [row for row in rows if not row[2]]
    if new:
        for (_, _, own), values in zip(new, new_states([param for param, _, _ in new]), strict=True):
            own.update({"step": torch.tensor(0.0, device="cpu"), **values})
    return rows


def _same_step(rows: list[Row], advance: Any) -> Iterator[_Rows]:
    """Yield the rows of each step number."""
    if not rows:
        return
    whole, grads, states = map(list, zip(*rows, strict=True))
    if set(map(type, whole)) == {torch.nn.Parameter}:
        steps = list(map(_STEP, states))
        common = advance(steps, 0.0)
        if common is not None:  # a first step, or parameters without a gradient between them
            yield whole, StepGroup(int(common) + 1, whole, grads, states), steps
            return
    by_number: dict[int, list[Row]] = {}
    for row in rows:
        by_number.setdefault(int(row[2]["step"]) + 1, []).append(row)
    for number, same in by_number.items():
        local = map(list, zip(*(local_row(*row) for row in same), strict=True))
        operands = StepGroup(number, *local)
        yield [row[0] for row in same], operands, list(map(_STEP, operands.states))


def grad_sign(group: dict[str, Any]) -> float:
    """Return the factor of the gradients: -1 where the group has `maximize`, else 1."""
    return -1.0 if group.get("maximize") else 1.0


def _raise_sparse() -> NoReturn:
    raise InvalidTensors(
        "the host optimizers cannot take this step: a sparse gradient",
        do="use torch.optim.SparseAdam for this parameter, or sparse=False in its embedding",
    )


def _check_options(group: dict[str, Any]) -> None:
    for option in ("amsgrad", "differentiable", "capturable"):
        if group.get(option):
            raise InvalidTensors(
                f"the host optimizer has no {option}: {option}=True",
                do=f"leave {option} out, or use torch's own optimizer",
            )


_FIRST, _SECOND = operator.itemgetter("exp_avg"), operator.itemgetter("exp_avg_sq")


class AdamW(HostOptimizer, torch.optim.AdamW):
    """torch.optim.AdamW with another `step`: same options, same state dict.

    Raises InvalidTensors (a ValueError) for amsgrad, differentiable and capturable. Source: arXiv:1711.05101.
    """

    def _update(self) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for number, params, grads, states in group_by_step(self, group, _new_states):
                cpu_steps.adam(
                    params,
                    grads,
                    list(map(_FIRST, states)),
                    list(map(_SECOND, states)),
                    step=number,
                    lr=float(group["lr"]),
                    beta1=float(beta1),
                    beta2=float(beta2),
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    decoupled=bool(group.get("decoupled_weight_decay", True)),
                    grad_factor=grad_sign(group),
                )


def _new_states(parameters: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    states = zip(cpu_steps.zeros_like(parameters), cpu_steps.zeros_like(parameters), strict=True)
    return [{"exp_avg": first, "exp_avg_sq": second} for first, second in states]


class Adagrad(HostOptimizer, torch.optim.Adagrad):
    """torch.optim.Adagrad with another `step`: same options, same state dict. Source: JMLR 12 (2011)."""

    def _update(self) -> None:
        for group in self.param_groups:

            def new_states(
                parameters: list[torch.Tensor], start: float = group["initial_accumulator_value"]
            ) -> Any:
                return [{"sum": zeros.add_(start)} for zeros in cpu_steps.zeros_like(parameters)]

            for number, params, grads, states in group_by_step(self, group, new_states):
                cpu_steps.adagrad(
                    params,
                    grads,
                    [state["sum"] for state in states],
                    lr=float(group["lr"]) / (1 + (number - 1) * group["lr_decay"]),
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    grad_factor=grad_sign(group),
                )


class Lion(HostOptimizer):
    """Lion with decoupled weight decay; its state is the momentum `exp_avg`. Source: arXiv:2302.06675.

    Raises ValueError for a negative lr or weight_decay, or betas outside [0, 1).
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        if lr < 0 or weight_decay < 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                f"lr={lr}, betas={betas}, weight_decay={weight_decay}: lr and decay from 0, betas in [0, 1)"
            )
        super().__init__(
            params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        )

    def _update(self) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for _, params, grads, states in group_by_step(self, group, _new_momenta):
                cpu_steps.lion(
                    params,
                    grads,
                    [state["exp_avg"] for state in states],
                    lr=float(group["lr"]),
                    beta1=float(beta1),
                    beta2=float(beta2),
                    weight_decay=group["weight_decay"],
                    grad_factor=grad_sign(group),
                )


def _new_momenta(parameters: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    return [{"exp_avg": first} for first in cpu_steps.zeros_like(parameters)]
