# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for Intel GPUs with Intel Extension for PyTorch, whose last release is for torch 2.8."""

from __future__ import annotations

import contextlib
import importlib
import io
from types import ModuleType

from accel_core.vendor import (
    Confirmation,
    Evidence,
    distribution_version,
    in_range,
    known_device,
    lacks_library,
    module_exists,
)
from accel_xpu import hardware, probe

DEVICE = known_device("xpu", "ipex")
MODULE = DEVICE.runtime
#: Supported releases; 2.8 is the last one.
IPEX = ">=2.8,<2.9"


def evidence() -> Evidence:
    """Check distribution, version range and Intel's render nodes; imports nothing."""
    presence = hardware.presence()
    if not module_exists(MODULE):
        return Evidence(False, presence.present, f"{MODULE} is not installed{presence.seen}")
    version = distribution_version(MODULE)
    installed = f"{MODULE} {version or 'of unknown version'}"
    if version is not None and not in_range(version, IPEX):
        return Evidence(False, presence.present, f"{installed} is installed, {IPEX} needed{presence.seen}")
    if lacks_library(MODULE, DEVICE.library):  # it takes seconds to import and replaces kernels of torch
        return Evidence(False, presence.present, f"{installed} is the build for CPUs{presence.seen}")
    return Evidence(True, presence.hardware, f"{installed}; {presence.reason}")


def confirm() -> Confirmation:
    """Import IPEX and count devices; raises what its import raises, or ImportError if it is made for another torch."""
    ipex = imported()
    if not ipex._C._has_xpu():
        return Confirmation(0, f"this {MODULE} is the build for CPUs")
    return probe.counted(f"torch.xpu with {MODULE}")


def imported() -> ModuleType:
    """Import and return the package; raises ImportError with both versions if it is made for another torch."""
    torch_version = str(importlib.import_module("torch").__version__)
    try:
        # It prints before it fails; detection must not print.
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
    """Return major and minor version, which are the same for IPEX and its torch."""
    return None if version is None else ".".join(version.split(".")[:2])
