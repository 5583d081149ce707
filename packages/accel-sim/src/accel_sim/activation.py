# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Activate the simulated device in this process: load the extension, then register the device type with torch."""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from importlib.machinery import ExtensionFileLoader
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.utils import backend_registration
from wrapt import register_post_import_hook

from accel_core.errors import InvalidInput
from accel_core.native import build as native_build
from accel_core.vendor import torch_threads
from accel_sim import build, execution_modes, ops, runtime, settings, surface, vendors
from accel_sim.errors import NotSimulated, absent
from accel_sim.runtime import habana_torch
from accel_sim.simulation import Simulation, current, set_current
from accel_sim.vendors import SimVendor

_log = logging.getLogger("accel_sim")


def activate(key: str) -> Simulation:
    """Simulate a vendor's device in this process. Raises `NotSimulated` after another one."""
    vendor = vendors.find(key)
    active = current()
    if active is not None:
        if active.vendor == vendor:
            return active
        raise NotSimulated(
            f"{key} cannot be simulated in this process: it already simulates {active.vendor.key}",
            do="start another process",
        )
    build.check_torch(vendor.key)
    simulation = _start(vendor)
    set_current(simulation)
    _register(simulation)
    torch_threads.finish_at_exit()
    return simulation


def _start(vendor: SimVendor) -> Simulation:
    chosen = settings.read()
    physical = vendors.visible_devices(vendor, chosen.devices, os.environ)[: vendor.max_devices]
    native = load(build.DEVICE)
    if vendor.claims:
        backend_registration.rename_privateuse1_backend(vendor.type)
    native.activate(
        vendor.type,
        1 if vendor.one_device else len(physical),
        chosen.memory,
        vendor.generators,
        chosen.strict,
        vendor.orders_data,
        vendor.state_bytes,
    )
    execution_modes.enable(native, vendor, chosen)
    return Simulation(vendor, chosen, native, physical, _module(vendor))


def load(extension: build.Extension) -> Any:
    """Return an extension as a module, the wheel's library or one that is compiled here."""
    packaged = build.packaged(extension)
    if packaged is not None:
        try:
            return _import(extension.name, str(packaged))
        except ImportError as error:  # of another build of the same release
            _log.warning("%s.so of the wheel does not load, it is compiled: %s", extension.name, error)
    return native_build.load(build.compiled(extension), functools.partial(_import, extension.name))


def _import(name: str, path: str) -> Any:
    # The path is a descriptor's: it has no suffix by which Python could tell what it is.
    spec = importlib.util.spec_from_file_location(name, path, loader=ExtensionFileLoader(name, path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


def _module(vendor: SimVendor) -> ModuleType:
    inside_torch = getattr(torch, vendor.type, None)
    if isinstance(inside_torch, ModuleType):
        return inside_torch
    module = ModuleType(f"torch.{vendor.type}")
    module.__path__ = []  # `import torch.npu.random` is a usual line
    return module


def _register(simulation: Simulation) -> None:
    """Fill the vendor's module, then register module, types, collectives and fused operators with torch."""
    vendor = simulation.vendor
    simulation.simulated.update(runtime.exports(simulation))
    for value in simulation.simulated.values():
        # Code that checks whether torch.cuda is torch's own reads where its functions are defined.
        if isinstance(value, FunctionType) and value.__module__.startswith(__name__.partition(".")[0]):
            value.__module__ = vendor.module
    names = surface.load(vendor.surface)
    refuses = bool(vendor.packages) and not vendor.device_type
    surface.fill(simulation.module, vendor.module, names, simulation.simulated, refuses=refuses)
    if not hasattr(torch, vendor.type):
        register: Any = torch._register_device_module
        register(vendor.type, simulation.module)
    _register_type(simulation)
    _register_collectives(simulation)
    ops.register(simulation)
    _let_operators_fail(simulation)


def _let_operators_fail(simulation: Simulation) -> None:
    """Let the operators that the settings name fail on the device. Raises `InvalidInput` for an unknown one."""
    names = simulation.settings.failing
    spaces = (ops.of(simulation.vendor.key).namespace, "aten")
    full = [
        f"{space}::{name}" for name in names for space in spaces if hasattr(getattr(torch.ops, space), name)
    ]
    if len(full) < len(names):
        raise InvalidInput(
            f"these operators cannot fail on the simulated device: {', '.join(names)}; expected names of "
            f"operators under torch.ops.{' or torch.ops.'.join(spaces)}, as _fused_adamw_",
            do=f"correct {settings.FAIL.name}; it is `accel sim --fail`",
        )
    if full:
        simulation.native.enable_failures(full, simulation.vendor.fails_once)


#: In a CPU build torch's storages refuse these types; the simulated memory does not.
_NO_STORAGE = ("cuda", "mps")
_NOT_STORED = [torch.quint8, torch.quint4x2, torch.quint2x4, torch.qint32, torch.qint8]


def _register_type(simulation: Simulation) -> None:
    """Add what torch expects in addition to the device module: methods like `Tensor.npu()`, storages, hooks."""
    if simulation.vendor.claims:
        backend_registration.generate_methods_for_privateuse1_backend(unsupported_dtype=_NOT_STORED)
        # torch asks every module of PrivateUse1 for this one, also where no public source shows it.
        simulation.module.__dict__.setdefault(
            "get_amp_supported_dtype", lambda: [torch.float16, torch.bfloat16, torch.float32]
        )
    if not hasattr(simulation.module, "_lazy_init"):
        # torch has nothing to call at the first tensor: a runtime without it is open once it is imported.
        simulation.simulated["_lazy_init"]()
    simulation.module.__dict__.setdefault("_is_in_bad_fork", lambda: False)
    register_post_import_hook(
        functools.partial(_refuse_inductor, simulation.type), "torch._inductor.compile_fx"
    )
    if simulation.type in _NO_STORAGE:
        _give_storages(simulation)
    if simulation.type == "cuda":
        ranges: Any = torch.cuda.nvtx
        ranges.range_push = ranges.range_pop = ranges.mark = lambda *_message: 0
    if simulation.type == "hpu":
        habana_torch.install(simulation)
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
                f"torch.compile's backend 'inductor' is not simulated for {type_}: a graph with {type_} "
                "tensors; a simulated device has no code generator",
                do=(
                    "engine.compile(backend='aot_eager'), torch.compile(…, backend='aot_eager'), or "
                    "get_accelerator().set_compile_backend('aot_eager')"
                ),
            )
        return stock(model, inputs, *arguments, **options)

    vars(module)["compile_fx"] = compile_fx


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


#: Classes of the backends that torch creates by class instead of by registration. NCCL2: torch >= 2.15.
_BUILT_IN = {"nccl": ("NCCL", "NCCL2"), "xccl": ("XCCL",)}


def _register_collectives(simulation: Simulation) -> None:
    """Register the vendor's backend of torch.distributed: gloo on the host memory of the device's tensors."""
    import torch.distributed as dist

    name = simulation.vendor.collectives
    if not dist.is_available() or name == "gloo":
        return
    if name in _BUILT_IN:

        def group(store: Any, rank: int, size: int, options: Any, _device: Any = None) -> Any:
            return _backend(simulation, store, rank, size, options._timeout)

        for each in _BUILT_IN[name]:
            replace_class(each, group, Options=_ActivationOptions)
    else:

        def create(options: Any, _backend_options: Any = None) -> Any:
            return _backend(
                simulation, options.store, options.group_rank, options.group_size, options.timeout
            )

        dist.Backend.register_backend(name, create, extended_api=True, devices=[simulation.type])
    if simulation.type == "npu":
        distributed: Any = dist
        distributed.is_hccl_available = lambda: True
        # The first one registered is the device's own.
        refuse = absent("the backend lccl of torch_npu")
        dist.Backend.register_backend("lccl", refuse, extended_api=True, devices=["npu"])
    if simulation.type in ("hpu", "xpu"):
        _name_object_device(simulation)


def _backend(simulation: Simulation, store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    from torch.distributed import ProcessGroupGloo

    gloo = ProcessGroupGloo(store, rank, size, timeout=timeout)
    return simulation.native.make_backend(gloo, simulation.vendor.collectives)


class _ActivationOptions:
    """The options that torch fills in for its own backend."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        self._timeout = timedelta(minutes=10)


def replace_class(backend: str, make: Callable[..., Any], **members: Any) -> None:
    """Let torch create a backend by `make` in place of its own class, `ProcessGroup<backend>`."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    class Meta(type):
        def __instancecheck__(cls, value: object) -> bool:
            name = getattr(value, "name", None)
            return callable(name) and str(name()).upper() == backend.upper().removesuffix("2")

        def __call__(cls, *arguments: Any, **options: Any) -> Any:
            return make(*arguments, **options)

    group = Meta(f"ProcessGroup{backend}", (), members)
    for module in (dist, distributed_c10d):
        setattr(module, f"ProcessGroup{backend}", group)
    setattr(distributed_c10d, f"_{backend.upper()}_AVAILABLE", True)


def _name_object_device(simulation: Simulation) -> None:
    # The collectives of these types run under PrivateUse1's kernels (csrc/collectives.cpp), for which the
    # group lists that type too. Objects must still be sent on the type that exists.
    from torch.distributed import distributed_c10d

    ask = distributed_c10d._get_object_coll_device

    def device(group: Any = None) -> str:
        found = ask(group)
        return simulation.type if found == "privateuseone" else found

    distributed_c10d._get_object_coll_device = device
