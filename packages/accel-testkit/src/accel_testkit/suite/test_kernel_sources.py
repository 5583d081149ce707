# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kernels' sources: they are there, built for every machine, and written for this device."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from accel_core import cascade
from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite import ops
from accel_testkit.suite.expect import expect
from accel_testkit.suite.target import Target

pytestmark = pytest.mark.tier("host")

_TEXT = {".py", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".mm", ".metal", ".sycl", ".txt", ".toml"}
#: Split so that this file does not hold what it looks for.
_NATIVE = "-march=" + "native"


@pytest.fixture
def folder(target: Target) -> Path:
    """The installed package's folder; for a class in a single module, that module's folder."""
    spec = importlib.util.find_spec(target.package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def test_sources_are_installed(accelerator: DeepSpeedAccelerator, folder: Path) -> None:
    """`sources()` of every served op lists files that were installed, absolute or below the package."""
    missing = [
        f"{name}: {source}"
        for name, builder in ops.served(accelerator).items()
        for source in builder.sources()
        if not any((root / source).is_file() for root in (folder, *_upstream_folders()))
    ]
    expect(
        not missing,
        "sources of ops are not installed",
        found="; ".join(missing),
        expected="files within the package, shipped as package data",
        do="add them to the wheel, and name them relative to the package",
    )


def _upstream_folders() -> list[Path]:
    # DeepSpeed's own builders name sources relative to its ops.
    spec = importlib.util.find_spec("deepspeed")
    return [] if spec is None or spec.origin is None else [Path(spec.origin).parent / "ops"]


def test_nothing_is_built_for_one_machine(folder: Path) -> None:
    """No source or build asks the compiler for the builder's own CPU: binaries are cached and shipped."""
    found = [
        path.name for path in _texts(folder) if _NATIVE in path.read_text(encoding="utf-8", errors="replace")
    ]
    expect(
        not found,
        f"kernels are built with {_NATIVE}",
        found=", ".join(found),
        expected="target_clones or named levels, chosen at run time",
        do="name the instruction sets, and dispatch between them",
    )


def test_sources_name_no_other_device(accelerator: DeepSpeedAccelerator, folder: Path) -> None:
    """The package uses no other device's torch module, such as torch.cuda on an NPU."""
    keys = {entry.key for entry in cascade.ENTRIES} - {cascade.CPU_KEY, "klxpu", "xpu.external"}
    others = keys - {accelerator.device_name()}
    found = [
        f"{path.relative_to(folder)}: torch.{name}"
        for path in folder.rglob("*.py")
        for name in _torch_attributes(path)
        if name in others
    ]
    expect(
        not found,
        "the package uses another device's module",
        found="; ".join(found),
        expected=f"torch.{accelerator.device_name()} or torch.accelerator",
        do="ask this device's module",
    )


def _texts(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix in _TEXT and path.is_file())


def _torch_attributes(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch"
    }
