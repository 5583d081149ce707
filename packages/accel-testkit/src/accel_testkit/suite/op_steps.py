# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The optimizer ops: how DeepSpeed calls each step function, and the same step of `accel_ops.reference`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from accel_ops import reference

Tensor = torch.Tensor
Tensors = list[Tensor]
Values = dict[str, Any]
#: IDs that no optimizer of DeepSpeed has: it counts from 0.
FIRST_ID, SECOND_ID = 2**31 - 3, 2**31 - 2

#: Hyperparameters of consecutive steps: DeepSpeed's defaults first; then every one changes, and step numbers leap.
_SCHEDULE: dict[str, list[Any]] = {
    "step": [1, 2, 3, 700, 100_000],
    "lr": [0.05, 0.013, 0.09, 0.02, 0.004],
    "betas": [(0.9, 0.999), (0.8, 0.95), (0.5, 0.7), (0.95, 0.99), (0.8, 0.98)],
    "eps": [1e-8, 1e-2, 1e-6, 1e-8, 1e-3],
    "weight_decay": [0.1, 0.0, 0.3, 0.01, 0.2],
    "scale": [1.0, 2.0, 1.0, 0.5, 3.0],
    "bounds": [(0.01, 10.0), (0.01, 0.3), (4.0, 10.0), (0.01, 10.0), (0.1, 3.0)],
}


def _near_zero(v: Values, grad: Tensor, param: Tensor, momentum: Tensor) -> Tensor:
    # As far as float32 may be off, in whatever order it is summed.
    beta: float = v["betas"][0]
    return (beta * momentum + (1 - beta) * grad).abs() < 1e-6 * (momentum.abs() + grad.abs())


@dataclass(frozen=True)
class StepOp:
    """One step function.

    op:        upstream's name of the op that has it; function: upstream's name of the function.
    states:    tensors beside gradient and parameter; squares: the last one is a mean or sum of squares.
    variants:  settings that hold for an optimizer, by name.
    keys:      which of the hyperparameters it takes.
    call:      take a step on [gradients, parameters, *states], lists of tensors.
    reference: the definition of one tensor's step.
    many:      the function takes lists, and is called once for all sizes; `call` may be given its flag of overflows.
    undecided: where a step may go either way, because rounding decides the sign of a sum that is nearly zero.
    """

    op: str
    function: str
    states: int
    variants: dict[str, Values]
    keys: tuple[str, ...]
    call: Callable[..., Any]
    reference: Callable[..., Tensors]
    on_device: bool
    many: bool = False
    squares: bool = True
    undecided: Callable[..., Tensor] | None = None

    @property
    def first(self) -> Values:
        """The settings of the first variant."""
        return next(iter(self.variants.values()))

    @property
    def values(self) -> Values:
        """The first step's hyperparameters, with these settings, of the optimizer `FIRST_ID`."""
        return {**self.schedule()[0], **self.first, "id": FIRST_ID}

    def wanted(self, values: Values, *tensors: Tensor) -> Tensors:
        """Return parameter and states after a step, of tensors in float64 (`values` may have an ID)."""
        return self.reference(*tensors, **{key: value for key, value in values.items() if key != "id"})

    def schedule(self) -> list[Values]:
        """The hyperparameters of consecutive steps."""
        return [{key: _SCHEDULE[key][number] for key in self.keys} for number in range(5)]


def _flag(lists: list[Tensors], flag: Tensor | None) -> Tensor:
    return torch.zeros(1, dtype=torch.int32, device=lists[1][0].device) if flag is None else flag


def _fused_adam(op: Any, lists: list[Tensors], v: Values, flag: Tensor | None = None) -> None:
    modes = int(v["decoupled"]), int(v["bias_correction"])
    settings = v["lr"], *v["betas"], v["eps"], v["step"], *modes, v["weight_decay"]
    op.multi_tensor_adam(2048, _flag(lists, flag), lists, *settings)


def _fused_lion(op: Any, lists: list[Tensors], v: Values, flag: Tensor | None = None) -> None:
    op.multi_tensor_lion(2048, _flag(lists, flag), lists, v["lr"], *v["betas"], v["step"], v["weight_decay"])


def _fused_lamb(op: Any, lists: list[Tensors], v: Values, copy: Tensor | None = None) -> Any:
    grad, param, first, second = (tensors[0] for tensors in lists)
    copy, (least, most) = param.new_empty(0) if copy is None else copy, v["bounds"]
    rates = v["lr"], *v["betas"], most, least, v["eps"], v["scale"]
    flags = int(not v["eps_inside"]), int(v["bias_correction"])
    return op.lamb(param, copy, first, second, grad, *rates, v["step"], *flags, v["weight_decay"])


def _cpu_adam(op: Any, lists: list[Tensors], v: Values) -> None:
    grad, param, first, second = (tensors[0] for tensors in lists)
    settings = v["lr"], *v["betas"], v["eps"], v["weight_decay"]
    op.adam_update(v["id"], v["step"], *settings, v["bias_correction"], param, grad, first, second)


def _cpu_adagrad(op: Any, lists: list[Tensors], v: Values) -> None:
    grad, param, total = (tensors[0] for tensors in lists)
    # A copy: upstream's leaves its update in the gradient.
    op.adagrad_update(v["id"], v["step"], v["lr"], v["eps"], v["weight_decay"], param, grad.clone(), total)


def _cpu_lion(op: Any, lists: list[Tensors], v: Values) -> None:
    grad, param, momentum = (tensors[0] for tensors in lists)
    op.lion_update(v["id"], v["step"], v["lr"], *v["betas"], v["weight_decay"], param, grad, momentum)


_ADAM_MODES = {
    f"{mode}{correction}": {"decoupled": mode == "AdamW", "bias_correction": not correction}
    for mode in ("Adam", "AdamW")
    for correction in ("", " uncorrected")
}
_LAMB_MODES = {
    "corrected": {"bias_correction": True, "eps_inside": False},
    "uncorrected": {"bias_correction": False, "eps_inside": False},
    "eps inside": {"bias_correction": True, "eps_inside": True},
}
_ADAM = ("step", "lr", "betas", "eps", "weight_decay")
_LION = ("step", "lr", "betas", "weight_decay")
_ADAGRAD = ("step", "lr", "eps", "weight_decay")
#: By the class name of the builder.
STEPS: dict[str, StepOp] = {
    "FusedAdamBuilder": StepOp(
        "fused_adam", "multi_tensor_adam", 2, _ADAM_MODES, _ADAM, _fused_adam, reference.adam, True, many=True
    ),
    "FusedLionBuilder": StepOp(
        "fused_lion", "multi_tensor_lion", 1, {"Lion": {}}, _LION, _fused_lion, reference.lion, True, many=True,
        squares=False, undecided=_near_zero,
    ),
    "FusedLambBuilder": StepOp(
        "fused_lamb", "lamb", 2, _LAMB_MODES, (*_ADAM, "scale", "bounds"), _fused_lamb, reference.lamb, True
    ),
    "CPUAdamBuilder": StepOp("cpu_adam", "adam_update", 2, _ADAM_MODES, _ADAM, _cpu_adam, reference.adam, False),
    "CPUAdagradBuilder": StepOp(
        "cpu_adagrad", "adagrad_update", 1, {"Adagrad": {}}, _ADAGRAD, _cpu_adagrad, reference.adagrad, False
    ),
    "CPULionBuilder": StepOp(
        "cpu_lion", "lion_update", 1, {"Lion": {}}, _LION, _cpu_lion, reference.lion, False, squares=False,
        undecided=_near_zero,
    ),
}  # fmt: skip


def create(op: Any, builder: str, number: int, settings: Values) -> None:
    """Create the optimizer of an ID, for ops that have IDs, with hyperparameters that no step uses."""
    if builder == "CPUAdamBuilder":
        op.create_adam(number, 0.7, 0.1, 0.2, 0.3, 0.4, settings["decoupled"], False)
    elif builder == "CPUAdagradBuilder":
        op.create_adagrad(number, 0.7, 0.3, 0.4, False)
    elif builder == "CPULionBuilder":
        op.create_lion(number, 0.7, 0.1, 0.2, 0.4, False)


def destroy(op: Any, builder: str, number: int) -> None:
    """Destroy the optimizer of an ID."""
    for name in ("adam", "adagrad", "lion"):
        if builder.lower() == f"cpu{name}builder":
            getattr(op, f"destroy_{name}")(number)
