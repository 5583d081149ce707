# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""An op of DeepSpeed with its implementations: routes, tried in order when it is first loaded, and plain torch.

A vendor states the routes of its device, and gets the builder that has upstream's name::

    QuantizerBuilder = QUANTIZER.builder(__name__, Route(…))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from accel_core.op_builder import Implementation, OpBuilder


class Unusable(Exception):
    """A route cannot be used here; the text is the reason."""


@dataclass(frozen=True)
class LoadedOp:
    """Functions that a route has loaded.

    functions: an object with upstream's functions.
    what:      returns, in words, what computes them; the first use of a function may change it.
    prepare:   does what is left to the first use.
    """

    functions: Any
    what: Callable[[], str]
    prepare: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Route:
    """One way to compute an op.

    implementations: what `load` tries.
    expected: returns what will compute the op, in words, before it is loaded.
    load:     may compute a few numbers on the device; raises `Unusable`.
    lack:     returns why `load` would fail, as far as that is known without the device; else nothing.
    """

    implementations: tuple[Implementation, ...]
    expected: Callable[[], str]
    load: Callable[[], LoadedOp]
    lack: Callable[[], str] = lambda: ""


@dataclass(frozen=True)
class Op:
    """An op of DeepSpeed.

    name:       upstream's name (`quantizer`).
    class_name: upstream's name of its builder.
    about:      what the op does.
    plain:      returns an object with upstream's functions, in plain torch.
    members:    further attributes of upstream's builder.
    """

    name: str
    class_name: str
    about: str
    plain: Callable[[], Any]
    members: Mapping[str, Any] = field(default_factory=dict)

    def builder(self, module: str, *routes: Route) -> type[RoutedBuilder]:
        """Return the builder of a device with these routes; module: `__name__` of the one that will have it."""
        facts = {
            "NAME": self.name,
            "BUILD_VAR": f"DS_BUILD_{self.name.upper()}",
            "OP": self,
            "ROUTES": routes,
        }
        return type(
            self.class_name, (RoutedBuilder,), {"__module__": module, "__doc__": self.about, **facts, **self.members}
        )  # fmt: skip


class RoutedBuilder(OpBuilder):
    """Builder of an `Op`."""

    OP: ClassVar[Op]
    ROUTES: ClassVar[tuple[Route, ...]]

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._loaded: LoadedOp | None = None

    @classmethod
    def implementations(cls) -> tuple[Implementation, ...]:
        """Return those of the routes, and plain torch."""
        found = [each for route in cls.ROUTES for each in route.implementations]
        return (*dict.fromkeys(found), Implementation.PLAIN)

    def compatibility(self) -> tuple[bool, str]:
        """Return True; the reason is certain once `load` has tried the routes."""
        if self._loaded:
            return True, self._loaded.what()
        lacks = [route.lack() for route in self.ROUTES]
        usable = (route.expected() for route, lack in zip(self.ROUTES, lacks, strict=True) if not lack)
        return True, next(usable, None) or _plain_torch(lacks)

    def load(self, verbose: bool = True) -> Any:
        """Return an object with upstream's functions, of the first route that works."""
        lacks = []
        for route in self.ROUTES:
            lack = route.lack()
            if not lack:
                try:
                    self._loaded = route.load()
                    return self._loaded.functions
                except Unusable as error:
                    lack = str(error)
            lacks.append(lack)
        self._loaded = LoadedOp(self.OP.plain(), lambda: _plain_torch(lacks))
        return self._loaded.functions

    def prepare(self) -> None:
        """Do what is left to the first use of the loaded functions."""
        if self._loaded:
            self._loaded.prepare()


def _plain_torch(lacks: list[str]) -> str:
    return f"plain torch: {'; '.join(lacks)}" if lacks else "plain torch"


def has_op(name: str) -> bool:
    """Return whether the runtime has registered an op under `torch.ops`, such as `npu.npu_rms_norm`."""
    import torch  # which a command's --help does not wait for

    namespace, _, op = name.partition(".")
    return hasattr(getattr(torch.ops, namespace), op)


def runtime_ops(op: Op, functions: Mapping[str, tuple[str, Callable[..., Any]]]) -> Route:
    """Return the route with the vendor's operators for some of an op's functions; the others are in plain torch.

    functions: {function: (operator under `torch.ops`, what takes its place)}. Operators are not tried before.
    """

    def names() -> list[str]:
        return sorted({name for name, _ in functions.values() if has_op(name)})

    def what() -> str:
        rest = "" if set(functions) == set(vars(op.plain())) else "; the rest in plain torch"
        return ", ".join(f"torch.ops.{name}" for name in names()) + rest

    def load() -> LoadedOp:
        loaded = op.plain()
        for function, (name, call) in functions.items():
            if has_op(name):
                setattr(loaded, function, call)
        return LoadedOp(loaded, what)

    def lack() -> str:
        missing = ", ".join(f"no torch.ops.{name}" for name, _ in functions.values())
        return "" if names() else f"this runtime has {missing}"

    return Route((Implementation.VENDOR_OP,), what, load, lack)
