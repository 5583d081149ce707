# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A machine with a fake runtime, for the tests of a vendor's probe."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.utils import canonicalize_name


class FakeRuntime:
    """Metadata, a module and device files below a folder, on sys.path and under ACCEL_SYSROOT for one test.

    The torch of that machine is a build for CPUs until `torch_build` says otherwise.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site, self.root = folder / "site", folder / "root"
        self._monkeypatch = monkeypatch
        self.site.mkdir(parents=True)
        self.root.mkdir()
        monkeypatch.syspath_prepend(self.site)
        monkeypatch.setenv("ACCEL_SYSROOT", str(self.root))
        self.torch_build()

    def install(self, name: str, version: str, source: str = "", module: str = "") -> None:
        """Install a distribution and a module, by default of that name.

        Without a source, importing it raises AssertionError.
        """
        info = self.site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
        )
        text = source or f"raise AssertionError('{name} is imported')\n"
        path = self.site.joinpath(*(module or name).split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        # The names are forgotten at the end of the test, whatever the import has left.
        parts = (module or name).split(".")
        for imported in (".".join(parts[: length + 1]) for length in range(len(parts))):
            self._monkeypatch.setitem(sys.modules, imported, ModuleType(imported))
            del sys.modules[imported]
        importlib.invalidate_caches()

    def torch_build(self, **fields: str) -> None:
        """Set the fields of `torch.version` that a build for a device has: `cuda="12.8"`."""
        version = self.root / "torch/version.py"
        version.parent.mkdir(exist_ok=True)
        lines = (f"{name} = {value!r}\n" for name, value in fields.items())
        version.write_text("".join(lines), encoding="utf-8")

    def uninstall(self, name: str) -> None:
        """Hide a distribution that the real machine may have, and the module of its name; `install` adds both again."""
        found = importlib.metadata.Distribution.from_name

        def from_name(asked: str) -> importlib.metadata.Distribution:
            distribution = found(asked)
            hidden = canonicalize_name(asked) == canonicalize_name(name)
            if hidden and Path(str(distribution.locate_file(""))) != self.site:
                raise importlib.metadata.PackageNotFoundError(asked)
            return distribution

        self._monkeypatch.setattr(importlib.metadata.Distribution, "from_name", from_name)
        self._monkeypatch.setitem(sys.modules, name, None)

    def device(self, *nodes: str) -> None:
        """Create device files, such as `dev/davinci0`."""
        for node in nodes:
            path = self.root / node
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
