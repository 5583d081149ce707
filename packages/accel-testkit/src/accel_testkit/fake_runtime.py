# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A machine with a fake runtime, for the tests of a vendor's probe."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest


class FakeRuntime:
    """Metadata, a module and device files below a folder, on sys.path and under ACCEL_SYSROOT for one test."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site, self.root = folder / "site", folder / "root"
        self._monkeypatch = monkeypatch
        self.site.mkdir(parents=True)
        self.root.mkdir()
        monkeypatch.syspath_prepend(self.site)
        monkeypatch.setenv("ACCEL_SYSROOT", str(self.root))

    def install(self, name: str, version: str, source: str = "") -> None:
        """Install a distribution and a module of that name. Without a source, importing it raises AssertionError."""
        info = self.site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
        )
        text = source or f"raise AssertionError('{name} is imported')\n"
        (self.site / f"{name}.py").write_text(text, encoding="utf-8")
        # The name is forgotten at the end of the test, whatever the import has left.
        self._monkeypatch.setitem(sys.modules, name, ModuleType(name))
        del sys.modules[name]
        importlib.invalidate_caches()

    def device(self, *nodes: str) -> None:
        """Create device files, such as `dev/davinci0`."""
        for node in nodes:
            path = self.root / node
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
