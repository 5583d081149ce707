# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which packages of core are public, and what is in them: griffe reads the names, the settings say which count.

Nothing is imported. The settings are [tool.accel.api] of the root's pyproject.toml.
Why: two programs ask griffe the same questions, ci.check_api and ci.public_surface, and ci.lowest some of them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import griffe

from ci.problem import CheckError, Problem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Member = griffe.Object | griffe.Alias
CORE_SOURCE = "packages/accel-core/src"
CORE_MODULE = "accel_core"


@dataclass(frozen=True)
class Settings:
    """packages: the public ones, as accel_core.vendor; base: a commit to compare with until there is a release."""

    packages: tuple[str, ...]
    base: str


def settings(root: Path) -> Settings:
    """Read the settings. Raises CheckError where they are missing."""
    file = root / "pyproject.toml"
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))["tool"]["accel"]["api"]
        return Settings(tuple(table["packages"]), table["base"])
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise CheckError(
            Problem(
                what="the public packages of accel-core are not known",
                found=f"{type(error).__name__}: {error}",
                expected="[tool.accel.api] in the root's pyproject.toml, with packages and base",
                do="run this from the root of a checkout",
            )
        ) from error


def load(source: Path, module: str = CORE_MODULE) -> griffe.Module:
    """The package below the folder `source`, with what it imports from itself resolved. Raises CheckError."""
    try:
        loader = griffe.GriffeLoader(search_paths=[source], allow_inspection=False)
        loaded = loader.load(module, try_relative_path=False)
        loader.resolve_aliases(implicit=True, external=False)
    except (griffe.GriffeError, ImportError) as error:
        raise CheckError(
            Problem(
                what=f"{module} cannot be read",
                found=f"{type(error).__name__}: {error}",
                expected=f"a package {module} in {source}",
                do="run this from the root of a checkout",
            )
        ) from error
    assert isinstance(loaded, griffe.Module)
    return loaded


def member(package: griffe.Module, dotted: str) -> Member | None:
    """What a dotted name below the package means, `accel_core.vendor.Vendor`; None where there is no such thing."""
    try:
        rest = dotted.split(".")[1:]
        return package.get_member(rest) if rest else package
    except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
        return None


def number(core: griffe.Module) -> str:
    """The interface number as it is written, `2`; empty where there is none."""
    found = member(core, f"{CORE_MODULE}.vendor.INTERFACE_VERSION")
    with contextlib.suppress(griffe.AliasResolutionError, griffe.CyclicAliasError):
        return str(
            getattr(found.final_target if isinstance(found, griffe.Alias) else found, "value", None) or ""
        )
    return ""


def sections(core: griffe.Module, packages: Sequence[str]) -> Iterator[tuple[Member, dict[str, Member]]]:
    """Each public module in order with its names; what a package passes on is not repeated below its submodule."""
    seen: set[str] = set()
    waiting = [found for name in packages if (found := member(core, name)) is not None]
    while waiting:
        module = waiting.pop(0)
        members = list(public_members(module))
        own = {name: m for name, m in members if not m.is_module and m.canonical_path not in seen}
        seen |= {m.canonical_path for m in own.values()}
        if own:
            yield module, own
        waiting[:0] = [m for _, m in members if m.is_module]


def public_members(
    parent: Member,
) -> Iterator[tuple[str, Member]]:
    """Public names of a module or class in order, those of this repository alone; a submodule counts as one."""
    for name, found in sorted(parent.members.items()):
        if not found.is_public:
            continue
        try:
            yield name, found.final_target if isinstance(found, griffe.Alias) else found
        except (griffe.AliasResolutionError, griffe.CyclicAliasError):
            continue
