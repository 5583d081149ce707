# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Replace methods of DeepSpeed by faster or right ones, where their source is the one that was replaced.

`table` has the rows. A replacement gets the stock method as its first argument and calls it wherever it does not apply
itself. All methods of a row are replaced or none.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import pkgutil
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from accel_core import env
from accel_core.vendor import distribution_version, in_range

_log = logging.getLogger("accel_core")
#: Modules whose wrappers are looked through.
_WRAPPERS = ("contextlib", "torch.utils._contextlib", "torch._compile")
#: Values of modules that were replaced, by module and name.
_values: dict[tuple[str, str], Any] = {}


@dataclass(frozen=True)
class MethodPatch:
    """Methods of a class, or functions of a module, that are replaced together, for speed or to fix them.

    name:     its name in the switch.
    target:   DeepSpeed's "module:Class", or "module".
    methods:  rows of (method, fingerprints of the sources for which the replacement was written, replacement). The
        fingerprints are separated by blanks. A replacement is a "module:function" of this package that is called with
        the stock method, the object and the arguments; empty for a method that is only relied upon.
    reason:   what it saves, or what works with it.
    releases: the range that is compared at all: from the first release that was tested to the end of the series.
    values:   rows of (name, replacement) for objects that the module has bound, as `torch`. Such a replacement is
        called with the object and returns the one that the module gets.
    needs:    name of a patch without which this one would be wrong.
    switch:   the variable that turns it off.
    """

    name: str
    target: str
    methods: tuple[tuple[str, str, str], ...]
    reason: str
    releases: str = ">=0.18.7,<0.20"
    values: tuple[tuple[str, str], ...] = ()
    needs: str = ""
    switch: env.Variable = env.SPEEDUPS

    @property
    def module(self) -> str:
        """The module of the class."""
        return self.target.partition(":")[0]

    @property
    def cls(self) -> str:
        """The name of the class; empty for functions of the module."""
        return self.target.partition(":")[2]

    def owner_in(self, module: ModuleType) -> Any:
        """Return the class, None if the module lacks it; or the module."""
        return getattr(module, self.cls, None) if self.cls else module


@dataclass(frozen=True)
class PatchState:
    """State of a row: on, or the reason why not."""

    name: str
    on: bool
    reason: str


def fingerprint(source: str) -> str:
    """Return the first 16 hexadecimal digits of the source's SHA-256, without its indentation."""
    return hashlib.sha256(textwrap.dedent(source).strip().encode()).hexdigest()[:16]


def apply(row: MethodPatch, module: ModuleType) -> PatchState:
    """Replace the methods in the imported module, or leave all as they are with a line in the debug log."""
    owner = row.owner_in(module)
    state = _state(row, functools.partial(_loaded_source, module, owner, row.cls))
    if not state.on:
        _log.debug("stock DeepSpeed for %s: %s", row.name, state.reason)
        return state
    for name, replacement in replaced(row):
        stock = vars(owner)[name]
        setattr(owner, name, method := _bound(stock, replacement))
        for table in (value for value in vars(owner).values() if isinstance(value, dict)):
            table.update({key: method for key, value in table.items() if value is stock})
        if owner is module:
            _rebind(name, stock, method)
    for name, replacement in row.values:
        _values.setdefault((module.__name__, name), getattr(module, name))
        setattr(module, name, pkgutil.resolve_name(f"{__package__}.{replacement}")(getattr(module, name)))
    return state


def put_back(row: MethodPatch, module: ModuleType) -> None:
    """Put the stock methods and values of a row back."""
    owner = row.owner_in(module)
    for name, _ in replaced(row):
        if ours := vars(owner).get(name):  # other releases lack some
            setattr(owner, name, stock := root(ours))
            if owner is module:
                _rebind(name, ours, stock)
    for name, _ in row.values:
        if (module.__name__, name) in _values:
            setattr(module, name, _values[module.__name__, name])


def _rebind(name: str, stock: Any, function: Any) -> None:
    """Replace a function in modules of DeepSpeed that have bound it, because they were imported ahead of accel_core."""
    for path, module in list(sys.modules.items()):
        if path.partition(".")[0] == "deepspeed" and getattr(module, "__dict__", {}).get(name) is stock:
            setattr(module, name, function)


def examine(row: MethodPatch, folder: Path | None) -> PatchState:
    """Return what `apply` would do, from the files below DeepSpeed's folder; imports nothing of DeepSpeed."""
    if folder is None:
        return PatchState(row.name, False, "deepspeed is not installed")
    path = folder.joinpath(*row.module.split(".")[1:]).with_suffix(".py")
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError as error:
        return PatchState(row.name, False, f"{path}: {error.strerror}")
    return _state(row, functools.partial(written_source, lines, row.cls))


def _state(row: MethodPatch, source: Callable[[str], str]) -> PatchState:
    value, reason = row.switch.get().strip(), ""
    if value == "0" or row.name in row.switch.names():
        reason = f"{row.switch.name}={value}"
    version = distribution_version("deepspeed") or ""
    if not reason and not in_range(version, row.releases):
        reason = f"deepspeed {version or 'of unknown version'} is outside {row.releases}"
    if not reason and (changed := [name for name, known, _ in row.methods if _differs(name, known, source)]):
        reason = f"{row.cls or row.module} has another source than it was written for: {', '.join(changed)}"
    return PatchState(row.name, not reason, reason or row.reason)


def _differs(name: str, known: str, source: Callable[[str], str]) -> bool:
    try:
        return fingerprint(source(name)) not in known.split()
    except (AttributeError, LookupError, OSError, TypeError):
        return True  # no such method, or no source file


def _loaded_source(module: ModuleType, owner: Any, cls: str, name: str) -> str:
    """Return the source of the method that is called, even if it was replaced."""
    function = root(vars(owner)[attribute_of(cls, name)])
    # DeepSpeed's @contextmanager, @torch.no_grad() and compiler.lazy_disable
    while function.__code__.co_filename in {
        getattr(sys.modules.get(each), "__file__", "") for each in _WRAPPERS
    }:
        function = function.__wrapped__
    if _folder(module) not in Path(function.__code__.co_filename).parents:
        # A wrapper would hide behind the source that it wraps.
        raise LookupError(f"{name} is no longer DeepSpeed's")
    return inspect.getsource(_undecorated(function))


def _undecorated(function: Any) -> Any:
    """Return the function below DeepSpeed's decorators; `instrument_w_nvtx` does not set `__wrapped__`."""
    while True:
        cells = inspect.getclosurevars(function).nonlocals
        inner = getattr(function, "__wrapped__", cells.get("func"))
        if not inspect.isfunction(inner):
            return function
        function = inner


def _folder(module: ModuleType) -> Path:
    """Return the folder of the package that the module belongs to."""
    return Path(str(module.__file__)).parents[module.__name__.count(".") - 1]


def written_source(lines: list[str], owner: str, name: str) -> str:
    """Return the source of a method, or of a function of the module, from the lines of its file."""
    indent = "    " if owner else ""
    start = _line(lines, 0, rf"class {owner}\b") + 1 if owner else 0
    start = _line(lines, start, rf"{indent}def {name}\b")
    while lines[start - 1].startswith(f"{indent}@"):
        start -= 1
    return "".join(inspect.getblock(lines[start:]))


def _line(lines: list[str], start: int, pattern: str) -> int:
    for index in range(start, len(lines)):
        if re.match(pattern, lines[index]):
            return index
    raise LookupError(pattern)


def replaced(row: MethodPatch) -> Iterator[tuple[str, str]]:
    """Yield attributes of the owner, each with its replacement."""
    return ((attribute_of(row.cls, name), replacement) for name, _, replacement in row.methods if replacement)


def attribute_of(owner: str, name: str) -> str:
    """Return the class's attribute: Python mangles names that begin with two underscores."""
    return f"_{owner.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name


def root(method: Any) -> Any:
    """Return the method that our replacements lead to."""
    while hasattr(method, "_accel_stock"):
        method = method._accel_stock
    return method


def _bound(stock: Callable[..., Any], replacement: str) -> Callable[..., Any]:
    function = pkgutil.resolve_name(f"{__package__}.{replacement}")
    method = functools.wraps(stock)(lambda *args, **kwargs: function(stock, *args, **kwargs))
    method._accel_stock = stock  # type: ignore[attr-defined]
    return method
