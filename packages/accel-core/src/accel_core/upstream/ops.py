# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Forwarding classes that make DeepSpeed's op builders follow the current accelerator.

`import deepspeed` binds the builder classes of one accelerator to names in some fifty modules. Here each name
becomes a forwarding class, and the tables made from the classes are updated when the accelerator changes.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from accel_core.op_builder import NotImplementedBuilder

OP_BUILDER = "deepspeed.ops.op_builder"
#: Base classes that DeepSpeed exports together with the builders.
_BASES = {"OpBuilder", "CUDAOpBuilder"}
_loaded: dict[type, dict[str, Any]] = {}


class Forwarding(type):
    """Type of the forwarding classes: calls, class attributes and type checks go to the current builder."""

    #: Returns the current accelerator; set by `forwarding`.
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


def forwarding(module: ModuleType, current: Callable[[], Any]) -> dict[str, tuple[Any, Any]]:
    """Create a forwarding class for each builder name in `deepspeed.ops.op_builder`.

    current: returns the current accelerator. Returns {name: (former class, forwarding class)}.
    """
    Forwarding.current = staticmethod(current)
    names = [name for name in vars(module) if name.endswith("Builder") and name not in _BASES]
    return {name: (getattr(module, name), _forwarding(name)) for name in names}


def _forwarding(name: str) -> Any:
    return Forwarding(name, (), {"__doc__": f"{name} of the current accelerator.", "__module__": OP_BUILDER})


def refresh(accelerator: Any) -> None:
    """Update DeepSpeed's tables for a new accelerator; None leaves them unchanged."""
    if accelerator is None:
        return
    base = sys.modules.get(f"{OP_BUILDER}.builder")
    if base is not None:
        # Upstream's cache of loaded ops is keyed by op name only; use one cache per accelerator class.
        base.OpBuilder._loaded_ops = _loaded.setdefault(type(accelerator), {})
    table = sys.modules.get(f"{OP_BUILDER}.all_ops")
    if table is None or not hasattr(table, "ALL_OPS"):
        return
    builders = _builders_of(accelerator)
    table.__op_builders__[:] = builders
    table.ALL_OPS.clear()
    table.ALL_OPS.update({builder.name: builder for builder in builders})
    table.accelerator_name = accelerator._name  # type: ignore[attr-defined]
    _refresh_compatible(table.ALL_OPS)


def _refresh_compatible(all_ops: dict[str, Any]) -> None:
    # 0.18 fills this dict at its import, 0.19 at the first access.
    frozen = (
        vars(sys.modules["deepspeed.ops"]).get("__compatible_ops__")
        if "deepspeed.ops" in sys.modules
        else None
    )
    if frozen is not None:
        frozen.clear()
        frozen.update({name: builder.is_compatible() for name, builder in all_ops.items()})
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
