# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The step functions of the optimizer ops, called as DeepSpeed calls them, and the schedules they are tried with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from accel_testkit.suite import reference_steps as reference

Tensors = list[torch.Tensor]
#: Around the vector widths of kernels and the chunks that they work in, and no element at all.
SIZES = (0, 1, 7, 257, 1023, 1024, 1025, 4097)
#: IDs that no optimizer of DeepSpeed has: it counts from 0.
FIRST_ID, SECOND_ID = 2**31 - 3, 2**31 - 2

#: Hyperparameters of consecutive steps: every one changes, and step numbers leap.
_RATES = [(1, 0.05), (2, 0.013), (3, 0.09), (700, 0.02), (100_000, 0.004)]
_BETAS = [(0.8, 0.95), (0.9, 0.999), (0.5, 0.7), (0.95, 0.99), (0.8, 0.98)]
_EPS = [1e-8, 1e-2, 1e-6, 1e-8, 1e-3]
_DECAYS = [0.1, 0.0, 0.3, 0.01, 0.2]
_BOUNDS = [(0.01, 10.0), (0.01, 0.3), (4.0, 10.0), (0.01, 10.0), (0.1, 3.0)]
_SCALES = [1.0, 2.0, 1.0, 0.5, 3.0]

Values = dict[str, Any]


@dataclass(frozen=True)
class StepOp:
    """One step function.

    op:        upstream's name of the op that has it; function: upstream's name of the function.
    states:    tensors beside gradient and parameter.
    variants:  settings that hold for an optimizer, by name.
    keys:      which of the hyperparameters it takes.
    call:      take a step on [gradients, parameters, *states], lists of tensors.
    wanted:    the float64 reference of one tensor's step.
    many:      the function takes lists, and is called once for all sizes; `call` may be given its flag of overflows.
    undecided: where a step may go either way, because rounding decides the sign of a sum that is nearly zero.
    """

    op: str
    function: str
    states: int
    variants: dict[str, Values]
    keys: tuple[str, ...]
    call: Callable[..., Any]
    wanted: Callable[..., Tensors]
    on_device: bool
    many: bool = False
    undecided: Callable[[Tensors, Values], torch.Tensor] | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the tensors of a step: none is empty where a function of the device takes one tensor."""
        return SIZES if self.many or not self.on_device else SIZES[1:]

    def schedule(self) -> list[Values]:
        """The hyperparameters of consecutive steps."""
        rows = zip(_RATES, _BETAS, _EPS, _DECAYS, _SCALES, _BOUNDS, strict=True)
        names = ("betas", "eps", "decay", "scale", "bounds")
        steps = [
            {"step": rate[0], "lr": rate[1], **dict(zip(names, row, strict=True))} for rate, *row in rows
        ]
        return [{key: step[key] for key in self.keys} for step in steps]


def _flag(lists: list[Tensors]) -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32, device=lists[1][0].device)


def _fused_adam(op: Any, lists: list[Tensors], v: Values, flag: torch.Tensor | None = None) -> None:
    flag = _flag(lists) if flag is None else flag
    modes = int(v["decoupled"]), int(v["corrected"])
    op.multi_tensor_adam(2048, flag, lists, v["lr"], *v["betas"], v["eps"], v["step"], *modes, v["decay"])


def _fused_lion(op: Any, lists: list[Tensors], v: Values, flag: torch.Tensor | None = None) -> None:
    flag = _flag(lists) if flag is None else flag
    op.multi_tensor_lion(2048, flag, lists, v["lr"], *v["betas"], v.get("step", 1), v["decay"])


def _lamb(op: Any, lists: list[Tensors], v: Values) -> Any:
    tensors = [group[0] for group in lists]
    return lamb(op, tensors, tensors[1].new_empty(0), v)


def lamb(op: Any, tensors: Tensors, copy: torch.Tensor, v: Values) -> Any:
    """Take a step of `lamb` on gradient, parameter and moments; return what it returns."""
    grad, param, first, second = tensors
    least, most = v["bounds"]
    mode = 0 if v["eps_inside"] else 1
    return op.lamb(
        param, copy, first, second, grad, v["lr"], *v["betas"], most, least, v["eps"], v["scale"],
        v["step"], mode, int(v["corrected"]), v["decay"],
    )  # fmt: skip


def _cpu_adam(op: Any, lists: list[Tensors], v: Values) -> None:
    grad, param, first, second = (tensors[0] for tensors in lists)
    settings = v["lr"], *v["betas"], v["eps"], v["decay"]
    op.adam_update(v["id"], v["step"], *settings, v["corrected"], param, grad, first, second)


def _cpu_adagrad(op: Any, lists: list[Tensors], v: Values) -> None:
    grad, param, total = (tensors[0] for tensors in lists)
    # A copy: upstream's leaves its update in the gradient.
    op.adagrad_update(v["id"], v["step"], v["lr"], v["eps"], v["decay"], param, grad.clone(), total)


def _cpu_lion(op: Any, lists: list[Tensors], v: Values) -> None:
    grad, param, momentum = (tensors[0] for tensors in lists)
    op.lion_update(v["id"], v["step"], v["lr"], *v["betas"], v["decay"], param, grad, momentum)


def _near_zero(tensors: Tensors, v: Values) -> torch.Tensor:
    grad, _, momentum = tensors
    beta: float = v["betas"][0]
    # As far as float32 may be off, in whatever order it is summed.
    return (beta * momentum + (1 - beta) * grad).abs() < 1e-6 * (momentum.abs() + grad.abs())


_ADAM_MODES = {
    f"{mode}{correction}": {"decoupled": mode == "AdamW", "corrected": not correction}
    for mode in ("Adam", "AdamW")
    for correction in ("", " uncorrected")
}
_LAMB_MODES = {
    "corrected": {"corrected": True, "eps_inside": False},
    "uncorrected": {"corrected": False, "eps_inside": False},
    "eps inside": {"corrected": True, "eps_inside": True},
}
_ADAM_KEYS = ("step", "lr", "betas", "eps", "decay")


def _without_step(wanted: Callable[..., Tensors]) -> Callable[..., Tensors]:
    def stepped(*tensors: torch.Tensor, step: int, **values: Any) -> Tensors:
        return wanted(*tensors, **values)

    return stepped


_LION_KEYS = ("step", "lr", "betas", "decay")
_lion, _adagrad = _without_step(reference.lion), _without_step(reference.adagrad)
_ADAGRAD_KEYS = ("step", "lr", "eps", "decay")
#: By the class name of the builder.
STEPS: dict[str, StepOp] = {
    "FusedAdamBuilder": StepOp(
        "fused_adam", "multi_tensor_adam", 2, _ADAM_MODES, _ADAM_KEYS, _fused_adam, reference.adam, True, many=True
    ),
    "FusedLionBuilder": StepOp(
        "fused_lion", "multi_tensor_lion", 1, {"Lion": {}}, _LION_KEYS, _fused_lion, _lion, True, many=True,
        undecided=_near_zero,
    ),
    "FusedLambBuilder": StepOp(
        "fused_lamb", "lamb", 2, _LAMB_MODES, (*_ADAM_KEYS, "scale", "bounds"), _lamb, reference.lamb, True
    ),
    "CPUAdamBuilder": StepOp(
        "cpu_adam", "adam_update", 2, _ADAM_MODES, _ADAM_KEYS, _cpu_adam, reference.adam, False
    ),
    "CPUAdagradBuilder": StepOp(
        "cpu_adagrad", "adagrad_update", 1, {"Adagrad": {}}, _ADAGRAD_KEYS, _cpu_adagrad, _adagrad, False
    ),
    "CPULionBuilder": StepOp(
        "cpu_lion", "lion_update", 1, {"Lion": {}}, _LION_KEYS, _cpu_lion, _lion, False, undecided=_near_zero
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
