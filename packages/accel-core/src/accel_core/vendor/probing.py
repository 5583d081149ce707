# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a probe's `evidence()` can see without importing anything: metadata, files, device files."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from accel_core import env
from accel_core.vendor.record import Evidence


def distribution_version(name: str) -> str | None:
    """Version of an installed distribution, None when it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def module_exists(name: str) -> bool:
    """Whether a top-level module can be found; it is not imported."""
    try:
        return importlib.util.find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError, AttributeError):
        # ValueError: a module put into sys.modules by hand without a spec. It can be imported.
        return name in sys.modules


def in_range(version: str, specifier: str) -> bool:
    """Whether a version lies in a range such as `>=2.1,<2.15`; pre-releases and local parts count."""
    try:
        return SpecifierSet(specifier).contains(Version(version).public, prereleases=True)
    except InvalidVersion:
        return False


def system_root() -> Path:
    """Return the folder under which /dev and /sys are looked up: `/`, or that of a recorded machine (ACCEL_SYSROOT)."""
    return Path(env.SYSROOT.get())


def device_files(patterns: Iterable[str]) -> list[Path]:
    """Device files that match glob patterns relative to the root (`dev/davinci[0-9]*`), sorted."""
    root = system_root()
    return sorted(file for pattern in patterns for file in root.glob(pattern))


def runtime_evidence(
    runtime: str, specifier: str, files: Sequence[str], *notes: str, distribution: str = ""
) -> Evidence:
    """The evidence for a device whose runtime is a distribution of its own; imports nothing.

    runtime:      module of the runtime (`torch_npu`).
    specifier:    releases of the runtime whose names the vendor's package uses.
    files:        glob patterns of its device files, relative to the root.
    notes:        what else the probe has seen; part of the reason.
    distribution: what the runtime is installed as, where that is not its module's name.
    """
    name = distribution or runtime
    version = distribution_version(name)
    if version is None:
        return Evidence(False, None, f"{name} is not installed")
    if not in_range(version, specifier):
        return Evidence(False, None, f"{name} {version} is installed, {specifier} is needed")
    present = device_files(files)
    found = f"{present[0]} exists" if present else f"no device file {' or '.join(files)}"
    return Evidence(True, bool(present), "; ".join((f"{name} {version}", *notes, found)))


def torch_build(attribute: str) -> str | None:
    """A field of `torch.version` (`cuda`, `hip`, `xpu`), read from the file when torch is not imported.

    A recorded machine (ACCEL_SYSROOT) may have a torch build of its own: torch/version.py in its folder.
    """
    recorded = system_root() / "torch" / "version.py"
    if recorded.is_file():
        return _texts_in(recorded).get(attribute)
    torch = sys.modules.get("torch")
    if torch is not None:
        value = getattr(getattr(torch, "version", None), attribute, None)
        return None if value is None else str(value)
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    return _texts_in(Path(spec.origin).with_name("version.py")).get(attribute)


def _texts_in(version_file: Path) -> dict[str, str]:
    try:
        tree = ast.parse(version_file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return {}
    fields: dict[str, str] = {}
    for node in tree.body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            fields.update({target.id: value.value for target in targets if isinstance(target, ast.Name)})
    return fields
