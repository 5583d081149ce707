# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The import hooks: they replace DeepSpeed's accelerator functions and its op builders, and call those of packages.

An exception in an import hook would be lost, and a second `import deepspeed` would run on upstream's own CPU.
If the bridge cannot be set up, the functions are replaced by ones that raise the error instead.

`import deepspeed` binds the builder classes of one accelerator to names in some fifty modules. Here each name becomes a
forwarding class, which follows the current accelerator, and the tables made from the classes are updated when it
changes.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import pkgutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from accel_core import env
from accel_core.errors import AccelError
from accel_core.op_builder import NotImplementedBuilder, OpBuilder
from accel_core.selection.current import CurrentAccelerator
from accel_core.upstream import contract, distributed, patches
from accel_core.vendor import torch_threads

_log = logging.getLogger("accel_core")
_OP_BUILDER = "deepspeed.ops.op_builder"
#: Base classes that DeepSpeed exports together with the builders.
_BASES = {"OpBuilder", "CUDAOpBuilder"}


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


def patch_deepspeed(current: CurrentAccelerator) -> None:
    """Replace the builders and `init_distributed`; the engine, which is imported after them, has been imported."""
    if not contract.is_registered():
        return
    _patch_builders(current)
    comm = importlib.import_module("deepspeed.comm.comm")
    stock = comm.init_distributed
    _rebind({"init_distributed": (stock, distributed.explained(stock, current.get))})


_loaded: dict[type, dict[str, Any]] = {}


class Forwarding(type):
    """Type of the forwarding classes: calls, class attributes and type checks go to the current builder."""

    #: Returns the current accelerator; set by `_patch_builders`.
    current: Callable[[], Any]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        # A class that derives from a forwarding class derives from its current builder.
        real = tuple(_builder(base.__name__) if isinstance(base, Forwarding) else base for base in bases)
        if real != bases:
            return type(real[0])(name, real, namespace)
        return super().__new__(mcs, name, bases, namespace)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _builder(cls.__name__)(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        return getattr(_builder(cls.__name__), name)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _builder(cls.__name__))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, _builder(cls.__name__))


def _builder(class_name: str) -> Any:
    accelerator = Forwarding.current()
    builder = accelerator.get_op_builder(class_name)
    if builder is None:  # accelerators written for upstream may return None
        name = accelerator.device_name()
        return NotImplementedBuilder.of(class_name, name, NotImplementedBuilder.why, ())
    return builder


def _forwarding(module: ModuleType) -> dict[str, Any]:
    """Return a forwarding class for each name of a builder in a module of DeepSpeed."""
    return {
        name: Forwarding(
            name, (), {"__doc__": f"{name} of the current accelerator.", "__module__": _OP_BUILDER}
        )
        for name in vars(module)
        if name.endswith("Builder") and name not in _BASES
    }


def _refresh(accelerator: Any) -> None:
    """Update DeepSpeed's tables for a new accelerator; None leaves them unchanged."""
    if accelerator is None:
        return
    base = sys.modules.get(f"{_OP_BUILDER}.builder")
    if base is not None:
        # Upstream's cache of loaded ops is keyed by op name only; use one cache per accelerator class.
        base.OpBuilder._loaded_ops = _loaded.setdefault(type(accelerator), {})
    table = sys.modules.get(f"{_OP_BUILDER}.all_ops")
    if table is None or not hasattr(table, "ALL_OPS"):
        return
    builders = _builders_of(accelerator)
    table.__op_builders__[:] = builders
    table.ALL_OPS.clear()
    table.ALL_OPS.update({builder.name: builder for builder in builders})
    table.accelerator_name = accelerator._name  # type: ignore[attr-defined]
    # 0.18 fills this dict at its import, 0.19 at the first access.
    ops = sys.modules.get("deepspeed.ops")
    frozen = None if ops is None else vars(ops).get("__compatible_ops__")
    if frozen is not None:
        frozen.clear()
        frozen.update({name: builder.is_compatible() for name, builder in table.ALL_OPS.items()})
        frozen[NotImplementedBuilder.NAME] = False


def _builders_of(accelerator: Any) -> list[Any]:
    """Return a builder for each name in the accelerator's op_builder package, as upstream collects them."""
    package = importlib.import_module(accelerator.op_builder_dir())
    names: dict[str, None] = {}
    for _, stem, _ in pkgutil.iter_modules([str(Path(str(package.__file__)).parent)]):
        if stem not in ("all_ops", "builder"):
            module = importlib.import_module(f"{package.__name__}.{stem}")
            names.update(dict.fromkeys(name for name in module.__dir__() if name.endswith("Builder")))
    created = (accelerator.create_op_builder(name) for name in names)
    return [builder for builder in created if builder is not None]


#: These bind builders from a submodule of `deepspeed.ops.op_builder`; not every release has both.
_PAST_THE_TABLE = ("deepspeed.compile.util", "deepspeed.ops.pin_memory")


def _patch_builders(current: CurrentAccelerator) -> None:
    """Replace DeepSpeed's builders by forwarding classes."""
    Forwarding.current = staticmethod(current.get)
    op_builder = importlib.import_module(_OP_BUILDER)
    op_builder.OpBuilder.register(OpBuilder)
    _rebind({name: (getattr(op_builder, name), new) for name, new in _forwarding(op_builder).items()})
    current.on_change(_refresh)
    for name in _PAST_THE_TABLE:
        with contextlib.suppress(ModuleNotFoundError):
            module = importlib.import_module(name)
            vars(module).update(_forwarding(module))


def import_hooks(current: CurrentAccelerator) -> list[tuple[str, Callable[[ModuleType], None]]]:
    """Return (module, import hook) for what is changed here or by a package; the first decides on the others."""

    return [
        ("deepspeed.accelerator.real_accelerator", lambda module: patch_accelerator(module, current)),
        ("deepspeed.runtime.engine", lambda _: patch_deepspeed(current)),
        *patches.package_hooks(),
    ]


def _keep_or_warn(module: ModuleType, current: CurrentAccelerator) -> None:
    """If deepspeed was imported first, keep an accelerator that the program has set, and warn of one it has chosen."""
    former = getattr(module, "ds_accelerator", None)
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
        if path.partition(".")[0] != "deepspeed" or path.startswith(f"{_OP_BUILDER}."):
            continue
        for name, (former, new) in replacements.items():
            if vars(module).get(name) is former:
                setattr(module, name, new)
