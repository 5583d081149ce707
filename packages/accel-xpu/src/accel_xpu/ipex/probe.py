# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether Intel GPUs can be used through Intel Extension for PyTorch, which ends with torch 2.8."""

from __future__ import annotations

import contextlib
import importlib
import io
from types import ModuleType

from accel_core.vendor import Confirmation, Evidence, distribution_version, in_range, module_exists
from accel_xpu import hardware, probe

MODULE = "intel_extension_for_pytorch"
#: The releases for the versions of torch that this package works with; 2.8 is the last.
IPEX = ">=2.5,<2.9"


def evidence() -> Evidence:
    """Distribution, version range and Intel's render nodes; imports nothing."""
    if not module_exists(MODULE):
        return Evidence(False, None, f"{MODULE} is not installed")
    version = distribution_version(MODULE)
    if version is not None and not in_range(version, IPEX):
        return Evidence(False, None, f"{MODULE} {version} is installed, {IPEX} is needed")
    presence = hardware.presence()
    return Evidence(True, presence.present, f"{MODULE} {version or 'of unknown version'}; {presence.reason}")


def confirm() -> Confirmation:
    """Import IPEX and count; raises what its import raises, which beside another torch is no ImportError."""
    ipex = imported()
    if not ipex._C._has_xpu():
        return Confirmation(0, f"this {MODULE} is the build for CPUs")
    return probe.counted(f"torch.xpu with {MODULE}")


def imported() -> ModuleType:
    """The package. Raises ImportError that tells both versions when it belongs to another torch."""
    torch_version = str(importlib.import_module("torch").__version__)
    try:
        # It prints before it fails, and detection prints nothing.
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module(MODULE)
    except (Exception, SystemExit) as error:
        made_for = _torch_of(distribution_version(MODULE))
        if made_for is None or made_for == _torch_of(torch_version):
            raise
        ended = f"its import ends with {type(error).__name__}: {error}"
        raise ImportError(
            f"{MODULE} is made for torch {made_for}, this is torch {torch_version}; {ended}"
        ) from error


def _torch_of(version: str | None) -> str | None:
    """Major and minor version, which IPEX has in common with its torch."""
    return None if version is None else ".".join(version.split(".")[:2])
