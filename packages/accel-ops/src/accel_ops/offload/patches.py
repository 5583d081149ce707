# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Replaces methods of DeepSpeed by faster or right ones, where their source is the one that was replaced.

`speedups` and `fixes` have the tables. A replacement gets the stock method as its first argument and calls it wherever
it does not apply itself. All methods of a row are replaced or none.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from accel_core import env
from accel_core.vendor import distribution_version, in_range

_log = logging.getLogger("accel_core")


@dataclass(frozen=True)
class MethodPatch:
    """Methods of one class that are replaced together, for speed or to fix them.

    name:     its name in the switch.
    target:   DeepSpeed's "module:Class".
    releases: the range that is compared at all: from the first release that was tested to the end of the series.
    methods:  rows of (method, fingerprints of the sources for which the replacement was written, replacement). The
        fingerprints are separated by blanks. A replacement is a "module:function" of this package that is called with
        the stock method, the object and the arguments; empty for a method that is only relied upon.
    reason:   what it saves, or what works with it.
    needs:    name of a patch without which this one would be wrong.
    upstream: where it was reported to DeepSpeed; empty if nowhere.
    switch:   the variable that turns it off.
    """

    name: str
    target: str
    releases: str
    methods: tuple[tuple[str, str, str], ...]
    reason: str
    needs: str = ""
    upstream: str = ""
    switch: env.Variable = env.SPEEDUPS

    @property
    def module(self) -> str:
        """The module of the class."""
        return self.target.partition(":")[0]

    @property
    def cls(self) -> str:
        """The name of the class."""
        return self.target.partition(":")[2]


class Status(NamedTuple):
    """Whether a speed-up is on, and why not: a row of `accel.deepspeed_patch_status`."""

    name: str
    on: bool
    reason: str


def fingerprint(source: str) -> str:
    """Return the first 16 hexadecimal digits of the source's SHA-256, without its indentation."""
    return hashlib.sha256(textwrap.dedent(source).strip().encode()).hexdigest()[:16]


def switched_off(speedup: MethodPatch) -> str:
    """Return the setting of its switch that turns it off, empty if none does."""
    value = speedup.switch.get().strip()
    off = value == "0" or speedup.name in speedup.switch.names()
    return f"{speedup.switch.name}={value}" if off else ""


def apply(speedup: MethodPatch, module: ModuleType) -> Status:
    """Replace the methods in the imported module, or leave all as they are with a line in the debug log."""
    owner = getattr(module, speedup.cls, None)
    status = _status(speedup, functools.partial(_loaded_source, module, owner))
    if status.on:
        for name, replacement in _replaced(speedup):
            stock, function = vars(owner)[name], pkgutil.resolve_name(f"{__package__}.{replacement}")
            setattr(owner, name, method := _bound(stock, function))
            for table in (value for value in vars(owner).values() if isinstance(value, dict)):
                table.update({key: method for key, value in table.items() if value is stock})
    else:
        _log.debug("stock DeepSpeed for %s: %s", speedup.name, status.reason)
    return status


def restore(speedup: MethodPatch, module: ModuleType) -> None:
    """Put the stock methods back, for tests and benchmarks that compare the two."""
    owner = getattr(module, speedup.cls)
    for name, _ in _replaced(speedup):
        if name in vars(owner):  # other releases lack some
            setattr(owner, name, _root(vars(owner)[name]))


def examine(speedup: MethodPatch, folder: Path | None) -> Status:
    """Return what `apply` would do, from the files below DeepSpeed's folder; imports nothing of DeepSpeed."""
    if folder is None:
        return Status(speedup.name, False, "deepspeed is not installed")
    path = folder.joinpath(*speedup.module.split(".")[1:]).with_suffix(".py")
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError as error:
        return Status(speedup.name, False, f"{path}: {error.strerror}")
    return _status(speedup, functools.partial(written_source, lines, speedup.cls))


def _status(speedup: MethodPatch, source: Callable[[str], str]) -> Status:
    reason = switched_off(speedup)
    version = distribution_version("deepspeed") or ""
    if not reason and not in_range(version, speedup.releases):
        reason = f"deepspeed {version or 'of unknown version'} is outside {speedup.releases}"
    if not reason:
        changed = [name for name, known, _ in speedup.methods if _differs(name, known, source)]
        if changed:
            reason = f"{speedup.cls} has another source than it was written for: {', '.join(changed)}"
    return Status(speedup.name, not reason, reason or speedup.reason)


def _differs(name: str, known: str, source: Callable[[str], str]) -> bool:
    try:
        return fingerprint(source(name)) not in known.split()
    except (AttributeError, LookupError, OSError, TypeError):
        return True  # no such method, or no source file


def _loaded_source(module: ModuleType, owner: Any, name: str) -> str:
    """Return the source of the method that is called, whoever may have replaced it."""
    function = _root(vars(owner)[attribute_of(owner.__name__, name)])
    if _folder(module) not in Path(function.__code__.co_filename).parents:
        raise LookupError(
            f"{name} is no longer DeepSpeed's"
        )  # a wrapper would hide behind the source it wraps
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
    """Return the source of a method from the lines of its file."""
    start = _line(lines, 0, rf"class {owner}\b")
    start = _line(lines, start + 1, rf"    def {name}\b")
    while lines[start - 1].startswith("    @"):
        start -= 1
    return "".join(inspect.getblock(lines[start:]))


def _line(lines: list[str], start: int, pattern: str) -> int:
    for index in range(start, len(lines)):
        if re.match(pattern, lines[index]):
            return index
    raise LookupError(pattern)


def _replaced(speedup: MethodPatch) -> Iterator[tuple[str, str]]:
    return ((attribute_of(speedup.cls, name), row) for name, _, row in speedup.methods if row)


def attribute_of(owner: str, name: str) -> str:
    """Return the class's attribute: Python mangles names that begin with two underscores."""
    return f"_{owner.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name


def _root(method: Any) -> Any:
    """Return the method that our replacements lead to."""
    while hasattr(method, "_accel_stock"):
        method = method._accel_stock
    return method


def _bound(stock: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return replacement(stock, self, *args, **kwargs)

    method._accel_stock = stock  # type: ignore[attr-defined]
    return method


def unknown_names(speedups: Iterable[MethodPatch]) -> list[tuple[env.Variable, str]]:
    """Return the items of switches that name nothing of the table, each with its variable."""
    known = dict.fromkeys((speedup.switch, speedup.name) for speedup in speedups)
    switches = dict.fromkeys(switch for switch, _ in known)
    items = [(switch, name) for switch in switches for name in switch.names() if name not in ("0", "1")]
    return [item for item in items if item not in known]
