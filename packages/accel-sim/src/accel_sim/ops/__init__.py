# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The vendors' fused operators: the real schemas, computed with plain torch; one module a vendor.

They are registered for the simulated device only: host tensors fail as on the real one. Half-precision tensors are
computed in float32 and rounded once.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from accel_sim import surface
from accel_sim.simulation import Simulation


@dataclass(frozen=True)
class Overload:
    """One overload of a fused operator.

    schema:         as the vendor registers it, without the namespace; from its surface, which names the source.
    run:            the same in plain torch.
    differentiable: the vendor has a backward for it; otherwise torch raises when one is asked for.
    """

    schema: str
    run: Callable[..., Any]
    differentiable: bool = False

    @property
    def name(self) -> str:
        """Name and overload: `npu_apply_adam_w.out`."""
        return self.schema.partition("(")[0]


class Ops:
    """The fused operators of a vendor, as `torch.ops.<namespace>`, with the schemas of its surface."""

    def __init__(self, vendor: str, namespace: str) -> None:
        self.namespace, self._vendor = namespace, vendor
        self.table: list[Overload] = []

    def add(
        self, run: Callable[..., Any], name: str = "", *, having: str = "", differentiable: bool = False
    ) -> None:
        """Add an operator. name: with `.overload`, default the function's; having: text that only its schema has."""
        name = name or run.__name__
        entry = surface.load(self._vendor).names[f"torch.ops.{self.namespace}.{name.partition('.')[0]}"]
        start = f"{self.namespace}::{name}("
        schemas = [s for s in entry.signature.split("; ") if s.startswith(start) and having in s]
        if not schemas:
            raise KeyError(name)
        self.table.append(Overload(schemas[0].partition("::")[2], run, differentiable))


VENDORS = ("npu", "mlu", "sdaa", "hpu", "supa", "klxpu")

_registered: list[Any] = []  # torch forgets a library's operators with the library


def of(key: str) -> Ops:
    """Return the operators of a vendor; an empty table where its packages call none."""
    if key not in VENDORS:
        return Ops(key, key)
    ops: Ops = importlib.import_module(f"{__name__}.{key}").OPS
    return ops


def register(simulation: Simulation) -> None:
    """Register the vendor's operators under `torch.ops`."""
    ops = of(simulation.vendor.key)
    if not ops.table:
        return
    key = "PrivateUse1" if simulation.vendor.claims else simulation.type.upper()
    make_library: Any = torch.library.Library
    library = make_library(ops.namespace, "FRAGMENT")
    for op in ops.table:
        library.define(op.schema)
        name, run = op.name.partition(".")[0], op.run
        if name in simulation.settings.failing:
            run = _failing(simulation.native, f"{ops.namespace}::{name}", run)
        library.impl(op.name, run, key)
        if op.differentiable:
            packet = getattr(getattr(torch.ops, ops.namespace), name)
            library.impl(op.name, _with_backward(packet, run), f"Autograd{key}")
    _registered.append(library)


def _failing(native: Any, name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator that fails on the device: of what it consists is dropped there."""

    @functools.wraps(run)
    def call(*args: Any, **kwargs: Any) -> Any:
        native.fail(name, torch.accelerator.current_device_index())
        return run(*args, **kwargs)

    return call


def _with_backward(packet: Any, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return what autograd calls: the parts of an operator, which have its backward, where a gradient is wanted.

    Otherwise the operator itself, as the vendor's does: modes of torch's dispatcher see it then.
    """

    def differentiable(*args: Any, **kwargs: Any) -> Any:
        tensors = (each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor))
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return run(*args, **kwargs)
        with torch._C._AutoDispatchBelowAutograd():
            return packet(*args, **kwargs)

    return differentiable


def packets(simulation: Simulation) -> dict[str, Any]:
    """Return the operators by name, as in the vendor's package: `torch_npu.npu_rms_norm`."""
    ops = of(simulation.vendor.key)
    namespace = getattr(torch.ops, ops.namespace)
    return {name: getattr(namespace, name) for name in {op.name.partition(".")[0] for op in ops.table}}


def same_device(name: str, *tensors: torch.Tensor) -> None:
    """Raise torch's error for tensors on several devices before anything is changed."""
    first = tensors[0].device
    for tensor in tensors:
        if tensor.device != first:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {first} and "
                f"{tensor.device}! (when checking arguments of {name})"
            )
