# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Helpers for a vendor's probe and accelerator: metadata, files, device files, backends of torch.distributed."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from accel_core import activate, env
from accel_core.vendor.record import Evidence

_ASSIGNED = re.compile(r"""^(\w+)\s*(?::[^=\n]+)?=\s*["']([^"'\n]*)["']""", re.MULTILINE)


def distribution_version(name: str) -> str | None:
    """Return the version of an installed distribution, None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def declaring_package(point: importlib.metadata.EntryPoint) -> tuple[str, str]:
    """Return name and version of the package that declares an entry point."""
    dist = point.dist
    return (dist.name, dist.version) if dist is not None else (point.value.partition(".")[0], "")


def module_exists(name: str) -> bool:
    """Return whether a top-level module can be found. Does not import it."""
    try:
        return importlib.util.find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError, AttributeError):
        # ValueError: a module without a spec was put into sys.modules. It can be imported.
        return name in sys.modules


def deepspeed_folder() -> Path | None:
    """Return the folder of the installed deepspeed, None if it is not installed. Does not import it."""
    if "deepspeed" in sys.modules:
        spec = getattr(sys.modules["deepspeed"], "__spec__", None)
    else:
        # Not importlib.util.find_spec, which would have our own finder register the hooks.
        finders = (finder for finder in sys.meta_path if finder is not activate.DeepSpeedImportFinder)
        spec = next(filter(None, map(_finds_deepspeed, finders)), None)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _finds_deepspeed(finder: Any) -> ModuleSpec | None:
    find = getattr(finder, "find_spec", None)
    found: ModuleSpec | None = find("deepspeed", None) if find else None
    return found


def in_range(version: str, specifier: str) -> bool:
    """Return whether a version is in a range such as `>=2.1,<2.15`; pre-releases and local versions count."""
    try:
        return SpecifierSet(specifier).contains(Version(version).public, prereleases=True)
    except InvalidVersion:
        return False


def system_root() -> Path:
    """Return the root folder of /dev and /sys: `/`, or the folder of a recorded machine (ACCEL_SYSROOT)."""
    return Path(env.SYSROOT.get())


def device_files(patterns: Iterable[str]) -> list[Path]:
    """Return the device files that match glob patterns relative to the root (`dev/davinci[0-9]*`), sorted."""
    root = system_root()
    return sorted(file for pattern in patterns for file in root.glob(pattern))


def runtime_evidence(
    runtime: str, specifier: str, files: Sequence[str], *notes: str, distribution: str = ""
) -> Evidence:
    """Return the evidence for a device whose runtime is a distribution; imports nothing.

    runtime:      module of the runtime (`torch_npu`).
    specifier:    range of the releases that were tested; others are used with a warning.
    files:        glob patterns of its device files, relative to the root.
    notes:        additional sentences for the reason.
    distribution: name of the distribution, if it is not that of the module.
    """
    name = distribution or runtime
    version = distribution_version(name)
    present = device_files(files)
    if version is None:
        return Evidence(False, bool(present), f"{name} is not installed")
    untested = "" if in_range(version, specifier) else f"{name} {version} was not tested; {specifier} was"
    found = f"{present[0]} exists" if present else f"no device file {' or '.join(files)}"
    reason = "; ".join((untested or f"{name} {version}", *notes, found))
    return Evidence(True, bool(present), reason, untested)


def torch_build(attribute: str) -> str | None:
    """Return a field of `torch.version` (`cuda`, `hip`, `xpu`), from the file if torch is not imported.

    A recorded machine (ACCEL_SYSROOT) may have its own torch/version.py.
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
    """Return the texts that are assigned in a `version.py`: `cuda: Optional[str] = '12.4'`."""
    try:
        text = version_file.read_text(encoding="utf-8")
    except OSError:
        return {}
    return dict(_ASSIGNED.findall(text))


class Collectives(NamedTuple):
    """A backend name for `torch.distributed.init_process_group`, and the reason for it."""

    backend: str
    reason: str


@dataclass(frozen=True)
class Bindings:
    """A package whose import registers a backend of torch.distributed.

    module:       name of the module.
    distribution: name of the distribution, for its version.
    backend:      name of the backend that it registers.
    device:       torch device type that the backend has to support.
    """

    module: str
    distribution: str
    backend: str
    device: str

    def fault(self) -> str | None:
        """Return why the backend cannot be used; None if it can. Does not raise.

        The first call imports the package; the result is cached.
        """
        return _fault(self)

    def or_else(self, otherwise: str) -> Collectives:
        """Return this backend if it can be used, else the other one with the reason."""
        fault = self.fault()
        if fault is None:
            return Collectives(self.backend, f"{self.module} is installed and serves this torch")
        return Collectives(otherwise, fault)


@functools.cache
def _fault(bindings: Bindings) -> str | None:
    module = bindings.module
    try:
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
        # Checked before the import: native code built for another torch may end the process.
        if mismatch := _mismatch(module, distribution_version(bindings.distribution)):
            return mismatch
        imported = importlib.import_module(module)
        if mismatch := _mismatch(module, getattr(imported, "__version__", None)):
            return mismatch
    except (Exception, SystemExit) as error:
        return f"{module} fails to import: {type(error).__name__}: {error}"
    return _unregistered(bindings)


def _mismatch(module: str, version: str | None) -> str | None:
    if version is None:
        return None
    import torch

    try:
        same = Version(version).release[:2] == Version(torch.__version__).release[:2]
    except InvalidVersion as error:
        return f"{module} has no readable version: {error}"
    return None if same else f"{module} {version} is built for another torch than {torch.__version__}"


def _unregistered(bindings: Bindings) -> str | None:
    from torch import distributed

    name = bindings.backend
    if not (distributed.is_available() and distributed.is_backend_available(name)):
        return f"{bindings.module} is imported but registers no backend named {name}"
    devices = distributed.Backend.backend_capability.get(name, [bindings.device])
    if bindings.device not in devices:
        return f"{bindings.module} registers {name} for {', '.join(devices)}, not for {bindings.device}"
    return None
