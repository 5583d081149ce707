# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Broken variants of the good accelerator. Each breaks one thing, and names the checks that have to notice."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

EVERYTHING = "*"


@dataclass
class Site:
    """What is on the path of a run: the good package's metadata, and files that take the place of its own.

    metadata, entry_points: text of the installed distribution.
    files:                  path below the folder -> text.
    environment:            variables for the run.
    """

    folder: Path
    metadata: str
    entry_points: str
    files: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace text in the run's own copy of the good package; an empty `old` means the end of the file."""
        source = Path(__file__).parents[1] / "accel_good" / path
        text = self.files.get(f"accel_good/{path}") or source.read_text(encoding="utf-8")
        assert old in text, f"{old!r} is not in {path}"
        self.files[f"accel_good/{path}"] = text.replace(old, new, 1) if old else f"{text}\n{new}"


Patch = Callable[[Site, pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Variant:
    """One broken thing.

    fails:   ids of the checks that have to fail; an id without its [parameter] stands for all of them.
    kind:    the broken class, or None where `patch` breaks something else.
    started: the fixture of the suite that starts processes and whose checks are run; empty: all other checks.
    """

    name: str
    fails: tuple[str, ...]
    kind: type | None
    patch: Patch | None
    started: str = ""


VARIANTS: dict[str, Variant] = {}


def breaks(*fails: str, started: str = "", name: str = "") -> Callable[[Any], Any]:
    """Register a broken class, or a function that breaks the site of a run."""

    def register(thing: Any) -> Any:
        kind, patch = (thing, None) if isinstance(thing, type) else (None, thing)
        variant = Variant(name or thing.__name__, fails, kind, patch, started)
        assert variant.name not in VARIANTS, f"two variants are called {variant.name}"
        VARIANTS[variant.name] = variant
        return thing

    return register


def answers(methods: dict[str, Any], *fails: str, started: str = "") -> None:
    """Register a variant for each method that then only returns the value; `{}` in an id is the method's name."""
    from accel_good.accelerator import GOOD_Accelerator

    for method, value in methods.items():
        name = f"{method}_is_{value!r}".replace(" ", "")
        kind = type(name, (GOOD_Accelerator,), {method: lambda self, *args, value=value, **kwargs: value})
        breaks(*(check.format(method) for check in fails), started=started, name=name)(kind)


def load() -> dict[str, Variant]:
    """All variants, by name."""
    for _, module, _ in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module}")
    return VARIANTS
