# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The accelerator under test: an installed vendor by its key, or a class by its dotted name."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from accel_core.selection.candidates import discover
from accel_core.selection.current import construct, validated
from accel_core.vendor import ENTRY_POINT_GROUP, Traits, Vendor

#: What the name of an environment variable looks like.
VARIABLE = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"


@dataclass(frozen=True)
class Target:
    """The accelerator that the command line names.

    vendor:      the record, None for a class named with --accel-class.
    accelerator: dotted name of the class.
    """

    vendor: Vendor | None
    accelerator: str

    def construct(self) -> Any:
        """Return a new accelerator object; raises what its import or constructor raises."""
        if self.vendor is not None:
            if self.vendor.imports_deepspeed:
                importlib.import_module("deepspeed")
            return construct(self.vendor)
        return validated(pkgutil.resolve_name(self.accelerator)())

    @property
    def package(self) -> str:
        """The top-level package of the class."""
        return self.accelerator.partition(":")[0].partition(".")[0]

    @property
    def folder(self) -> Path:
        """The installed package's folder; for a class in a single module, that module's folder."""
        spec = importlib.util.find_spec(self.package)
        assert spec is not None
        assert spec.origin is not None
        return Path(spec.origin).parent


#: Where the plug-in keeps the target of a run.
TARGET = pytest.StashKey[Target]()


def named(key: str, dotted: str) -> Target:
    """Return the target of the options --accel and --accel-class. Raises pytest.UsageError."""
    if bool(key) == bool(dotted):
        raise pytest.UsageError(
            "the conformance suite needs one of --accel KEY (an installed vendor) and "
            f"--accel-class PACKAGE.MODULE:CLASS; installed vendors: {_installed()}"
        )
    if dotted:
        return Target(None, dotted)
    vendor = _vendor(key)
    return Target(vendor, vendor.accelerator)


def _vendor(key: str) -> Vendor:
    discovery = discover()
    variants = [vendor for vendor in discovery.vendors if key in (vendor.key, vendor.label)]
    if not variants:
        reasons = "".join(f"\n  {candidate.reason}" for candidate in discovery.broken if candidate.key == key)
        raise pytest.UsageError(
            f"no vendor with the key {key!r} can be used; installed vendors: {_installed()}{reasons}"
        )
    # Of the variants of one key (xpu through IPEX or natively) the tests are about the one whose runtime is here.
    return max(variants, key=lambda vendor: (vendor.evidence().runtime, vendor.priority))


def records(vendor: Vendor) -> dict[str, Vendor]:
    """Return the vendor's record as its package defines it, by the dotted name in the entry point.

    Core fills in what a record leaves out; an entry point that cannot be loaded is left out here.
    """
    found = {}
    for point in importlib.metadata.distribution(vendor.distribution).entry_points:
        if point.group == ENTRY_POINT_GROUP:
            with contextlib.suppress(Exception):
                record = point.load()
                if (record.key, record.variant) == (vendor.key, vendor.variant):
                    found[point.value] = record
    return found


def variables(vendor: Vendor) -> list[str]:
    """Return the names in the source of the vendor's package that look like environment variables."""
    found: set[str] = set()
    for file in Target(vendor, vendor.accelerator).folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value} if re.fullmatch(VARIABLE, node.value) else set()
    return sorted(found)


def _installed() -> str:
    return ", ".join(sorted(vendor.label for vendor in discover().vendors)) or "none"


def traits_of(accelerator: Any) -> Traits:
    """Return what an accelerator declares that it cannot do."""
    declared: Traits = getattr(accelerator, "traits", None) or {}
    return declared
