# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Wheels of pretended packages: a deepspeed, an accel-core and a vendor of a few lines each."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

CORE = """
import importlib.metadata, json, os, pkgutil

_current = None

def vendors():
    return [point.load() for point in importlib.metadata.entry_points(group="accel.vendors")]

def get_accelerator():
    global _current
    if _current is None:
        asked = os.environ.get("DS_ACCELERATOR", "toy")
        _current = next((v.accelerator()() for v in vendors() if v.key == asked), object())
    return _current

def main():
    print(json.dumps({"candidates": [v.finding for v in vendors()]}))
"""
VENDOR = """
import pkgutil

class VENDOR:
    key = "toy"
    finding = {"key": "toy", "package": "accel-toy", "state": "present", "runtime": True, "reason": "two toys"}
    accelerator = staticmethod(lambda: pkgutil.resolve_name("accel_toy.accelerator:Toy"))
"""
DEEPSPEED = "import accel_core\n\ndef get_accelerator():\n    return accel_core.get_accelerator()\n"


def write_wheel(
    folder: Path,
    name: str,
    files: Mapping[str, str],
    *,
    version: str = "0.1.0",
    requires: str = "",
    entries: str = "",
) -> Path:
    """A pure wheel with these files."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Dist: {requires}\n" if requires else ""
    everything = {
        **files,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: toys\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entries,
    }
    record = "".join(f"{path},,\n" for path in [*everything, f"{info}/RECORD"])
    wheel = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**everything, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return wheel


def write_all(folder: Path) -> None:
    """deepspeed 0.19.0, accel-core 0.2.0 and accel-toy 0.1.0."""
    folder.mkdir(parents=True, exist_ok=True)
    write_wheel(
        folder,
        "deepspeed",
        {"deepspeed/__init__.py": "", "deepspeed/accelerator.py": DEEPSPEED},
        version="0.19.0",
    )
    write_wheel(
        folder,
        "accel-core",
        {"accel_core/__init__.py": CORE},
        version="0.2.0",
        entries="[console_scripts]\naccel = accel_core:main\n",
    )
    write_wheel(
        folder,
        "accel-toy",
        {
            "accel_toy/__init__.py": "",
            "accel_toy/vendor.py": VENDOR,
            "accel_toy/accelerator.py": "class Toy: pass\n",
        },
        requires="accel-core>=0.1,<1",
        entries="[accel.vendors]\ntoy = accel_toy.vendor:VENDOR\n",
    )
