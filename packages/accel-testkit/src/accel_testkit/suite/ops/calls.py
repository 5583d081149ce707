# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Calls of ops with the samples of their specs, and what is wrong with the results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from accel_testkit.suite import op_steps
from accel_testkit.suite.op_steps import STEPS
from accel_testkit.suite.ops import of_builder
from accel_testkit.suite.ops.spec import Numbers, OpSpec, Sample, Values, error


def equal(tensor: torch.Tensor, before: torch.Tensor) -> bool:
    """True for the same type, shape and numbers; NaN is equal to NaN."""
    if tensor.dtype != before.dtype or tensor.shape != before.shape:
        return False
    same = torch.equal(tensor, before)
    return same or bool(((tensor == before) | (tensor.isnan() & before.isnan())).all())


def problems(
    spec: OpSpec, op: Any, sample: Sample, device: torch.device, dtype: torch.dtype
) -> Iterator[str]:
    """Call a sample; yield what is wrong."""
    arguments = sample.placed(device, dtype)
    before = {name: value.clone() for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    for value in arguments.values() if spec.detached else ():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            value.requires_grad_()
    try:
        found = spec.call(op, dtype, arguments)
        errors = sample.errors(found, dtype)
    except Exception as raised:
        yield f"{type(raised).__name__}: {raised}"
        return
    for what, times in errors.items():
        if not times <= 1:
            yield f"{what}: {f'{times:.3g} times as far off as allowed' if math.isfinite(times) else 'wrong'}"
    returned = found[len(spec.written) :] if not spec.in_place else []
    first, place = arguments.get(spec.strides), torch.empty(0, device=device).device
    for at, tensor in enumerate(returned):
        if tensor.device != place:
            yield f"result {at} is on {tensor.device}, expected {place}"
        if spec.detached and tensor.requires_grad:
            yield f"result {at} has a history in autograd"
        if first is not None and tensor.stride() != first.stride():
            yield f"result {at} has strides {tensor.stride()}, expected those of {spec.strides}"
        if first is None and not tensor.is_contiguous():
            yield f"result {at} is not contiguous"
    written = {*spec.written, *(sample.alias[name] for name in spec.written if name in sample.alias)}
    for name, tensor in before.items():
        if name not in written and not equal(arguments[name], tensor):
            yield f"{name} is overwritten"


def _first_problem(name: str, op: Any, device: torch.device, *types: torch.dtype) -> str:
    """Call the first sample of each function that draws no numbers in each type; return what is wrong, or nothing."""
    for spec, dtype in itertools.product(of_builder(name), types or (torch.float32,)):
        sampled = dtype in spec.types and not spec.random
        for problem in problems(spec, op, spec.first(dtype), device, dtype) if sampled else ():
            return f"{spec.function} in {dtype}: {problem}"
    return ""


def _step_problem(name: str, op: Any, device: torch.device) -> str:
    """Take a step of each variant on the same numbers; return what is wrong, or nothing."""
    step, new = STEPS[name], Numbers(torch.float32)
    for variant, settings in step.variants.items():
        values = {**step.values, **settings}
        before = [new.normal(33).abs().float() for _ in range(2 + step.states)]
        lists = [[tensor.to(device, copy=True)] for tensor in before]
        op_steps.create(op, name, op_steps.FIRST_ID, settings)
        step.call(op, lists, values)
        op_steps.destroy(op, name, op_steps.FIRST_ID)
        wanted = step.wanted(values, *(tensor.double() for tensor in before))
        apart = max(error(found[0], exact, 1e-5) for found, exact in zip(lists[1:], wanted, strict=False))
        if apart > 1:
            return f"{step.function} ({variant}) is {apart:.3g} times as far off as allowed"
    return ""


def problem(name: str, op: Any, device: torch.device, *types: torch.dtype) -> str:
    """Call each function of an op, in float32 if no types are given; return what is wrong, or nothing."""
    return _step_problem(name, op, device) if name in STEPS else _first_problem(name, op, device, *types)


def copies(arguments: Mapping[str, Any], device: torch.device | None = None) -> Values:
    """Return the arguments with a copy of each tensor, on the device or where it is."""
    return {
        name: value.clone().to(device or value.device) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }


def strided(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the same numbers in another order of memory, and with gaps between them."""
    shape = (*tensor.shape[:-1], 2 * tensor.shape[-1])
    part = torch.full(shape, 3, dtype=tensor.dtype, device=tensor.device)[..., ::2].copy_(tensor)
    return {"turned": tensor.transpose(0, -1).contiguous().transpose(0, -1), "with gaps": part}
