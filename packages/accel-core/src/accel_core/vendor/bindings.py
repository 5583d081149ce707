# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Packages that add a backend to torch.distributed, and whether they work with the installed torch."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from dataclasses import dataclass
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from accel_core.vendor.probing import distribution_version


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
