# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The import hooks: they replace DeepSpeed's accelerator functions, its op builders, and some functions.

An exception in an import hook would be lost, and a second `import deepspeed` would run on upstream's own CPU.
If the bridge cannot be set up, the functions are replaced by ones that raise the error instead.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NoReturn

from accel_core import env
from accel_core.errors import AccelError
from accel_core.selection.current import CurrentAccelerator
from accel_core.upstream import contract, distributed, ops, patches, runner
from accel_core.vendor import torch_threads

_log = logging.getLogger("accel_core")


def patch_accelerator(module: ModuleType, current: CurrentAccelerator) -> None:
    """Replace the functions of `deepspeed.accelerator.real_accelerator`, which has just been imported."""
    try:
        if not env.BRIDGE.on():
            return
        if not contract.register_interface():
            stock = module.get_accelerator
            _rebind({"get_accelerator": (stock, contract.without_cpu(stock, current.deepspeed))})
            return
        functions: dict[str, Callable[..., Any]] = {
            "get_accelerator": current.get,
            "set_accelerator": current.set,
            "is_current_accelerator_supported": current.is_supported,
        }
    except AccelError as error:
        functions = {"get_accelerator": _raising(error), "set_accelerator": _raising(error)}
    else:
        _keep_or_warn(module, current)
        torch_threads.finish_at_exit()
    _rebind({name: (getattr(module, name), function) for name, function in functions.items()})
    # Code may have bound upstream's function before; that function returns this variable.
    current.on_change(lambda accel: setattr(module, "ds_accelerator", accel))


def patch_deepspeed(engine: ModuleType, current: CurrentAccelerator) -> None:
    """Replace builders and functions; `deepspeed.runtime.engine` has been imported, and what they are in before it."""
    _patch_builders(current)
    comm = importlib.import_module("deepspeed.comm.comm")
    stock = comm.init_distributed
    _rebind({"init_distributed": (stock, distributed.explained(stock, current.get))})
    distributed.gather_flat(comm.TorchBackend)
    patches.patch_engine(engine)


#: These bind builders from a submodule of `deepspeed.ops.op_builder`; not every release has both.
_PAST_THE_TABLE = ("deepspeed.compile.util", "deepspeed.ops.pin_memory")


def _patch_builders(current: CurrentAccelerator) -> None:
    """Replace DeepSpeed's builders by forwarding classes."""
    op_builder = importlib.import_module(ops.OP_BUILDER)
    contract.register_builders(op_builder.OpBuilder)
    _rebind(ops.forwarding(op_builder, current.get))
    current.on_change(ops.refresh)
    for name in _PAST_THE_TABLE:
        with contextlib.suppress(ModuleNotFoundError):
            module = importlib.import_module(name)
            vars(module).update(
                {builder: new for builder, (_, new) in ops.forwarding(module, current.get).items()}
            )


#: By module of DeepSpeed; called after its import if the bridge is on.
_PATCHES: dict[str, Callable[[ModuleType, CurrentAccelerator], None]] = {
    "deepspeed.runtime.engine": patch_deepspeed,
    "deepspeed.launcher.runner": lambda module, current: runner.patch(module, current.get),
    "deepspeed.inference.v2.modules.implementations": (
        lambda module, current: patches.patch_inference(module, current.get)
    ),
}


def import_hooks(current: CurrentAccelerator) -> list[tuple[str, Callable[[ModuleType], None]]]:
    """Return (module, import hook) for what is changed here or by a package; the first decides on the others."""

    def guarded(patch: Callable[[ModuleType, CurrentAccelerator], None]) -> Callable[[ModuleType], None]:
        def hook(module: ModuleType) -> None:
            if contract.is_registered():
                patch(module, current)

        return hook

    return [
        ("deepspeed.accelerator.real_accelerator", lambda module: patch_accelerator(module, current)),
        *((name, guarded(patch)) for name, patch in _PATCHES.items()),
        ("cpuinfo", patches.patch_cpu_info),
        *patches.package_hooks(),
    ]


def _keep_or_warn(module: ModuleType, current: CurrentAccelerator) -> None:
    """If deepspeed was imported first, keep an accelerator that the program has set, and warn of one it has chosen."""
    former = module.ds_accelerator
    if former is None or current.state()[0] is not None:
        return
    if type(former).__module__.partition(".")[0] != "deepspeed":
        current.set(former)
    elif env.is_local_rank_zero():
        _log.warning(
            "deepspeed was imported ahead of accel_core and uses its own %s; from now on get_accelerator() is "
            "accel_core's, and what was made before keeps the other. Import accel_core, or the vendor's package, "
            "ahead of deepspeed, or unset TORCH_DEVICE_BACKEND_AUTOLOAD",
            type(former).__name__,
        )


def _raising(error: AccelError) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise error.with_traceback(None)

    return refuse


def _rebind(replacements: Mapping[str, tuple[Any, Any]]) -> None:
    """Replace {name: (former, new)} wherever a deepspeed module has bound the former object to that name.

    Usually that is one module, but about fifty if deepspeed was imported before accel_core. The modules that define
    the builders keep them.
    """
    for path, module in list(sys.modules.items()):
        if path.partition(".")[0] != "deepspeed" or path.startswith(f"{ops.OP_BUILDER}."):
            continue
        for name, (former, new) in replacements.items():
            if vars(module).get(name) is former:
                setattr(module, name, new)
