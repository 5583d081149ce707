# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A folder on sys.path with packages that a test writes."""

import importlib
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from accel_core import devices

VENDOR = """\
from accel_core.vendor import Vendor

VENDOR = Vendor(
    key={key!r}, interface={interface}, accelerator="{module}.accelerator:Fake_Accelerator", probe="{module}.probe",
    priority={priority}, distribution={package!r}, requires="torch_{key}", {record}
)
"""
_PROBE = """\
from accel_core.vendor import Confirmation, Evidence

def evidence():
    {evidence}

def confirm():
    {confirm}
"""
_ACCELERATOR = """\
import torch

from accel_core import OpTable, TorchDeviceAccelerator

class Fake_Accelerator(TorchDeviceAccelerator):
    def __init__(self):
        {init}
        super().__init__({key!r}, collectives="gloo", ops=OpTable("{module}", {{}}), device_module=torch.cpu)

    def visible_devices_envs(self):
        return ["FAKE_VISIBLE_DEVICES"]
"""


class SitePackages:
    """The folder, and what is installed in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def distribution(
        self,
        name: str,
        version: str = "1.0",
        entry_points: Mapping[str, Mapping[str, str]] | None = None,
        requires: tuple[str, ...] = (),
    ) -> None:
        """Write the metadata of a package, which hides an installed one of this name."""
        self.remove(name)
        folder = self.path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        (folder / "METADATA").write_text("\n".join(lines) + "\n")
        lines = []
        for group, points in (entry_points or {}).items():
            lines += [f"[{group}]", *(f"{point} = {target}" for point, target in points.items())]
        (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")
        importlib.invalidate_caches()

    def remove(self, name: str) -> None:
        """Remove the metadata: an installed package of this name is seen again."""
        for former in self.path.glob(f"{name.replace('-', '_')}-*.dist-info"):
            shutil.rmtree(former)

    def module(self, path: str, source: str) -> None:
        """Write a module, by its path in the folder."""
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(source))
        importlib.invalidate_caches()

    def install(
        self,
        key: str,
        *,
        package: str = "",
        version: str = "1.2",
        priority: int | str | None = None,
        interface: int = 2,
        evidence: str = "return Evidence(True, None, 'its runtime is installed')",
        confirm: str = "return Confirmation(2, 'its runtime counts 2')",
        init: str = "pass",
        record: str = "",
        vendor: str = VENDOR,
        accelerator: str = _ACCELERATOR,
        requires: tuple[str, ...] = (),
    ) -> str:
        """Install a vendor package whose functions have these bodies; return the name of its module."""
        package = package or f"accel-{key}"
        module = f"fake_{re.sub('[^a-z]', '_', package)}"
        self.distribution(package, version, {"accel.vendors": {key: f"{module}.vendor:VENDOR"}}, requires)
        values = {
            "key": key, "interface": interface, "module": module, "package": package, "record": record,
            "priority": devices.known_device(key).priority if priority is None else priority,
            "evidence": evidence, "confirm": confirm, "init": init,
        }  # fmt: skip
        self.module(f"{module}/__init__.py", "")
        for name, text in {"vendor": vendor, "probe": _PROBE, "accelerator": accelerator}.items():
            self.module(f"{module}/{name}.py", text.format(**values) if "{" in text else text)
        return module
