# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Machines with Intel's packages: stand-ins for them, written into a folder that a process imports from."""

import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accel_ops import routes

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """`install("package", "source", version="1.0")`: a package of one module that can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(name: str, source: str = "", *, version: str = "") -> Path:
        module = tmp_path / name / "__init__.py"
        module.parent.mkdir()
        module.write_text(textwrap.dedent(source))
        if version:
            record = tmp_path / f"{name}-{version}.dist-info"
            record.mkdir()
            (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        return module

    yield write
    installed = {path.name for path in tmp_path.iterdir()}
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in installed:
            del sys.modules[name]


@pytest.fixture
def render_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`render_node("0x8086")`: a machine with one GPU, of that PCI vendor; none for an empty text."""
    root = tmp_path / "sysroot"
    root.mkdir()
    monkeypatch.setenv("ACCEL_SYSROOT", str(root))

    def plug(vendor: str) -> None:
        for folder in ("dev/dri", "sys/class/drm/renderD128/device"):
            (root / folder).mkdir(parents=True)
        (root / "dev/dri/renderD128").touch()
        if vendor:
            (root / "sys/class/drm/renderD128/device/vendor").write_text(f"{vendor}\n")

    return plug


@pytest.fixture(autouse=True)
def _tried_anew() -> Iterator[None]:
    """Kernels are tried once a process; each test is one."""
    routes.tried.cache_clear()
    yield
    routes.tried.cache_clear()


@pytest.fixture(autouse=True)
def no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """The surrounding shell chooses no device."""
    monkeypatch.delenv("ZE_AFFINITY_MASK", raising=False)


#: Elsewhere test_kernels.py runs them.
collect_ignore = [] if "ACCEL_XPU_RUNTIME" in os.environ else ["spirv"]
