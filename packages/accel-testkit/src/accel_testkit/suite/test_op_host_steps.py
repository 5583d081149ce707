# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op host steps: what host optimizers may offer for the path of offloaded gradients; where they do, it is right."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_ops.op_builder.optimizers import HostStepOp, host_step_op
from accel_testkit.suite import op_steps
from accel_testkit.suite.holds import Holds
from accel_testkit.suite.op_steps import STEPS

pytestmark = pytest.mark.tier("device")

_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_DO = "compare it with accel_ops.op_builder.optimizers.HostStepOp"
_BUILDERS = [
    pytest.param(name, marks=pytest.mark.needs(name)) for name, step in STEPS.items() if not step.on_device
]


def _offered(accelerator: DeepSpeedAccelerator, name: str) -> HostStepOp | None:
    """The op, if it has these functions; without them the bridge leaves DeepSpeed's own path."""
    return host_step_op(accelerator.create_op_builder(name).load())


def _numbers(size: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("name", _BUILDERS)
def test_gradients_are_copied_and_summed(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`copy_gradient` converts, adds to what was accumulated or replaces it, and returns the sum of squares."""
    op, holds = _offered(accelerator, name), Holds()
    if op is None:
        return
    for source in _TYPES:
        for target in (source, torch.float32):
            for add in (None, True, False):
                grad, before = _numbers(1029, source), _numbers(1029, source, 2)
                kept, place = before.clone(), torch.full((1029,), torch.nan, dtype=target)
                named = {} if add is None else {"accumulated": kept, "add": add}
                squares = op.copy_gradient(grad, place, **named)  # type: ignore[arg-type]
                wanted = before.add(grad) if add else grad
                case = f"{source} to {target}, {'alone' if add is None else 'added' if add else 'replaced'}"
                holds.same(f"{case}: what is copied", place, wanted.to(target))
                holds.same(f"{case}: the gradient stays", grad, _numbers(1029, source))
                if add is not None:
                    holds.same(f"{case}: what is accumulated", kept, wanted)
                exact = float(place.double().square().sum())
                holds[f"{case}: the sum of squares, {squares:g}"] = math.isclose(squares, exact, rel_tol=1e-6)
    holds.expect(f"copy_gradient() of {name}", _DO)


@pytest.mark.parametrize("name", _BUILDERS)
def test_squares_are_summed_in_float64(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`sum_of_squares` neither overflows nor loses small numbers, and shows NaN and infinity."""
    op, holds = _offered(accelerator, name), Holds()
    if op is None:
        return
    cases = {
        "squares beyond float32": torch.full((5,), 1e30),
        "squares below float32": torch.full((5,), 1e-30),
        "many small beside a large": torch.cat([torch.tensor([4096.0]), torch.full((99_999,), 1e-1)]),
        "float16": _numbers(4097, torch.float16) * 100,
        "nothing": torch.empty(0),
    }
    for case, tensor in cases.items():
        found, wanted = op.sum_of_squares(tensor), float(tensor.double().square().sum())
        holds[f"{case}: {found:g}"] = math.isclose(found, wanted, rel_tol=1e-7)
    for number in (math.nan, math.inf, -math.inf):
        tensor = torch.ones(1029)
        tensor[-1] = number
        for seen in (op.sum_of_squares(tensor), op.copy_gradient(tensor, torch.empty(1029))):
            holds[f"{number} is seen: {seen:g}"] = not math.isfinite(seen)
    holds.expect(f"sum_of_squares() of {name}", _DO)


@pytest.mark.parametrize("dtype", _TYPES[1:], ids=["bf16", "fp16"])
@pytest.mark.parametrize("name", _BUILDERS)
def test_fused_steps_are_steps(
    accelerator: DeepSpeedAccelerator, created: Any, name: str, dtype: torch.dtype
) -> None:
    """`fused` steps as with multiplied gradients, which stay, and fills the copy, each piece before it is told."""
    step, holds = STEPS[name], Holds()
    settings = next(iter(step.variants.values()))
    op = created(name, op_steps.FIRST_ID, settings)
    offered = host_step_op(op)
    if offered is None:
        return
    values = {**step.schedule()[0], **settings, "id": op_steps.FIRST_ID}
    plain = [[_numbers(1029, torch.float32, seed).abs()] for seed in range(2 + step.states)]
    fused = [[group[0].clone()] for group in plain]
    plain[0][0] *= 0.25
    step.call(op, plain, values)
    copy = torch.full((1029,), torch.nan, dtype=dtype)
    reported: list[tuple[int, int, bool]] = []

    def copied(begin: int, end: int) -> None:
        reported.append((begin, end, not copy[begin:end].isnan().any()))

    stepping = offered.fused(grad_factor=0.25, copy=copy, copied=copied)
    _call_fused(step, stepping, fused, values)
    for number, (ours, theirs) in enumerate(zip(fused[1:], plain[1:], strict=True)):
        holds[f"output {number} is that of the step"] = torch.allclose(
            ours[0], theirs[0], rtol=1e-6, atol=1e-7
        )
    holds.same("the gradient stays", fused[0][0], _numbers(1029, torch.float32, 0).abs())
    holds.same("the copy is rounded to nearest", copy, fused[1][0].to(dtype))
    holds[f"pieces follow each other to the end: {reported}"] = _cover(reported, 1029)
    holds["each piece is complete when it is told"] = all(whole for _, _, whole in reported)
    holds[f"updates counts: {stepping.updates}"] = stepping.updates == 1
    holds.expect(f"fused() of {name}", _DO)


def _call_fused(
    step: op_steps.StepOp, op: Any, lists: list[op_steps.Tensors], values: op_steps.Values
) -> None:
    class Passing:
        """Hands gradients on as they are, where a step of ours clones them."""

        def __getattr__(self, name: str) -> Any:
            if name != "adagrad_update":
                return getattr(op, name)
            return lambda *a: op.adagrad_update(*a[:6], lists[0][0], *a[7:])

    step.call(Passing(), lists, values)


def _cover(reported: list[tuple[int, int, bool]], size: int) -> bool:
    ends = [0, *(end for _, end, _ in reported)]
    return [begin for begin, _, _ in reported] == ends[:-1] and ends[-1] == size
