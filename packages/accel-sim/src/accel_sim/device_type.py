# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Register a simulated device type with torch: tensor methods, storages, profiler ranges, what inductor says."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from torch.utils import backend_registration
from wrapt import register_post_import_hook

from accel_sim.errors import NotSimulated
from accel_sim.simulation import Simulation

#: In a CPU build torch's storages refuse these types; the simulated memory does not.
_NO_STORAGE = ("cuda", "mps")


def register(simulation: Simulation) -> None:
    """Add what torch expects beside the device module: methods like `Tensor.npu()`, storages, hooks."""
    if simulation.vendor.claims:
        backend_registration.generate_methods_for_privateuse1_backend(unsupported_dtype=_not_stored())
        # torch asks every module of PrivateUse1 for this one, also where no public source shows it.
        simulation.module.__dict__.setdefault("get_amp_supported_dtype", _amp_types)
    if not hasattr(simulation.module, "_lazy_init"):
        # torch has nothing to call at the first tensor: a runtime without it is open once it is imported.
        simulation.simulated["_lazy_init"]()
    simulation.module.__dict__.setdefault("_is_in_bad_fork", _never)
    register_post_import_hook(
        functools.partial(_refuse_inductor, simulation.type), "torch._inductor.compile_fx"
    )
    if simulation.type in _NO_STORAGE:
        _give_storages(simulation)
    if simulation.type == "cuda":
        ranges: Any = torch.cuda.nvtx
        ranges.range_push = ranges.range_pop = ranges.mark = _no_range
    if simulation.type == "mps":
        backend: Any = torch.backends.mps
        backend.is_available = backend.is_built = lambda: simulation.devices > 0


def _refuse_inductor(type_: str, module: ModuleType) -> None:
    """Let torch.compile's backend inductor say that it has no code for the simulated device."""
    stock: Any = vars(module)["compile_fx"]

    @functools.wraps(stock)
    def compile_fx(model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        if any(isinstance(value, torch.Tensor) and value.device.type == type_ for value in inputs):
            raise NotSimulated(
                what=f"torch.compile's backend 'inductor' is not simulated for {type_}",
                found=f"a graph with {type_} tensors; a simulated device has no code generator",
                expected="a backend that generates no code for the device: 'eager' or 'aot_eager'",
                do="engine.compile(backend='aot_eager'), torch.compile(…, backend='aot_eager'), or "
                "get_accelerator().set_compile_backend('aot_eager')",
            )
        return stock(model, inputs, *arguments, **options)

    vars(module)["compile_fx"] = compile_fx


def _not_stored() -> list[torch.dtype]:
    return [torch.quint8, torch.quint4x2, torch.quint2x4, torch.qint32, torch.qint8]


def _amp_types() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16, torch.float32]


def _no_range(*_message: str) -> int:
    return 0


def _never() -> bool:
    return False


def _give_storages(simulation: Simulation) -> None:
    storage: Any = torch.UntypedStorage
    make, resize = storage.__new__, storage.resize_

    def new(cls: Any, *arguments: Any, device: Any = None, **options: Any) -> Any:
        if device is None or torch.device(device).type != simulation.type:
            if device is not None:
                options["device"] = device
            return make(cls, *arguments, **options)
        size = arguments[0] if arguments else 0
        return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()

    def resized(self: Any, size: int) -> Any:
        if self.device.type != simulation.type:
            return resize(self, size)
        simulation.native.resize_storage(
            torch.empty(0, dtype=torch.uint8, device=self.device).set_(self), size
        )
        return self

    storage.__new__ = staticmethod(new)
    storage.resize_ = resized
