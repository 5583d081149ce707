# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Calls of ops with the samples of their specs, and what is wrong with the results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from accel_testkit.suite.ops import of_builder
from accel_testkit.suite.ops.spec import SENTINEL, OpSpec, Sample, Values, is_framed


def equal(tensor: torch.Tensor, before: torch.Tensor) -> bool:
    """True for the same type, shape and numbers; NaN is equal to NaN."""
    if tensor.dtype != before.dtype or tensor.shape != before.shape:
        return False
    same = torch.equal(tensor, before)
    return same or bool(((tensor == before) | (tensor.isnan() & before.isnan())).all())


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors of an argument."""
    return [each for each in tree_leaves(value) if isinstance(each, torch.Tensor)]


def problems(
    spec: OpSpec, op: Any, sample: Sample, device: torch.device, dtype: torch.dtype
) -> Iterator[str]:
    """Make the calls of a sample; yield what is wrong."""
    call: Sample | None = sample
    while call is not None:
        arguments = call.placed(spec.place(device), dtype)
        before = copies(arguments)
        for name, value in arguments.items():
            for tensor in tensors_in(value) if spec.detached or name in call.leaves else ():
                tensor.requires_grad_(tensor.is_floating_point())
        try:
            found = spec.call(op, dtype, arguments)
            errors = call.errors(found, dtype)
        except Exception as raised:
            yield f"{type(raised).__name__}: {raised}, {call.what}"
            return
        for what, times in errors.items():
            if not times <= 1:
                yield f"{what}: {f'{times:.3g} times as far off as allowed' if math.isfinite(times) else 'wrong'}"
        kept = [each.detach().cpu().clone() for each in found] if call.then else []
        yield from _misplaced(spec, arguments, found)
        yield from _overwritten(spec, call, arguments, before)
        call = call.then(kept) if call.then else None


def _misplaced(spec: OpSpec, arguments: Values, found: list[torch.Tensor]) -> Iterator[str]:
    """Yield the results that are on another device, in another order of memory, or part of a graph of autograd."""
    written = len(tensors_in([arguments[name] for name in spec.written]))
    first, place = arguments.get(spec.strides), tensors_in(arguments)[0].device
    for at, tensor in enumerate(found):
        if tensor.grad_fn is not None or (spec.detached and tensor.requires_grad and at >= written):
            yield f"result {at} has a history in autograd"
        if at < written:
            continue
        if tensor.device != place:
            yield f"result {at} is on {tensor.device}, expected {place}"
        if first is not None and tensor.stride() != first.stride():
            yield f"result {at} has strides {tensor.stride()}, expected those of {spec.strides}"
        if first is None and not spec.shares and not tensor.is_contiguous():
            yield f"result {at} is not contiguous"


def _overwritten(spec: OpSpec, call: Sample, arguments: Values, before: Values) -> Iterator[str]:
    """Yield the arguments that must not be written and are, and those around which memory is. Overwrites all."""
    written = {*spec.written, *(call.alias[name] for name in spec.written if name in call.alias)}
    for name, value in arguments.items():
        pairs = zip(tensors_in(value), tensors_in(before[name]), strict=True)
        if name not in written and not all(equal(*pair) for pair in pairs):
            yield f"{name} is overwritten"
    for name, value in arguments.items():
        if not all(map(is_framed, tensors_in(value))):
            yield f"memory around {name} is overwritten"


def problem(name: str, op: Any, device: torch.device, *types: torch.dtype) -> str:
    """Call each function of an op that draws no numbers, in float32 if no types are given.

    Return what is wrong with the first sample, or nothing.
    """
    for spec, dtype in itertools.product(of_builder(name), types or (torch.float32,)):
        sampled = dtype in spec.types and not spec.random
        for found in problems(spec, op, spec.first(dtype), device, dtype) if sampled else ():
            return f"{spec.name} in {dtype}: {found}"
    return ""


def copies(arguments: Mapping[str, Any], device: torch.device | None = None) -> Values:
    """Return the arguments with a copy of each tensor, on the device or where it is."""
    copied: Values = tree_map_only(
        torch.Tensor, lambda each: each.clone().to(device or each.device), {**arguments}
    )
    return copied


def strided(value: Any) -> dict[str, Any]:
    """Return a tensor, or arguments, with the same numbers in another order of memory, and with gaps between them."""

    def turned(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.transpose(0, -1).clone(memory_format=torch.contiguous_format).transpose(0, -1)

    def with_gaps(tensor: torch.Tensor) -> torch.Tensor:
        shape = (*tensor.shape[:-1], 2 * tensor.shape[-1])
        return tensor.new_full(shape, SENTINEL)[..., ::2].copy_(tensor)

    forms = {"turned": turned, "with gaps": with_gaps}
    return {form: tree_map_only(torch.Tensor, change, value) for form, change in forms.items()}
