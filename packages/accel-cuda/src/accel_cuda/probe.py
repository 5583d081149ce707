# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for CUDA and ROCm devices: the build of torch, device files, and the device count of torch.cuda."""

from __future__ import annotations

import os
import sys
import warnings
from types import ModuleType
from typing import Any

from accel_core.vendor import (
    Confirmation,
    Evidence,
    distribution_version,
    found_devices,
    known_device,
    module_exists,
    torch_build,
)
from accel_cuda import visible

#: Other cards with CUDA's interface are counted, too.
DEVICE = known_device("cuda")


def evidence() -> Evidence:
    """Check the build of torch and the drivers' device files; imports nothing."""
    if not module_exists("torch"):
        return Evidence(False, None, "torch is not installed")
    version = f"torch {distribution_version('torch') or 'of unknown version'}"
    present, found = found_devices(DEVICE.files)
    linux = sys.platform.startswith("linux")
    built = [f"{name} {torch_build(name)}" for name in DEVICE.torch_fields if torch_build(name)]
    if not built:
        reason = f"{version} is built without {' or '.join(DEVICE.torch_fields)}"
        reason += f"; {found}" if present and linux else ""
        return Evidence(False, present if linux else None, reason)
    have = f"{version} is built with {' and '.join(built)}"
    if not linux:
        return Evidence(True, None, f"{have}; there are no device files to look for on {sys.platform}")
    return Evidence(True, present or None, f"{have}; {found}")


def confirm() -> Confirmation:
    """Count devices without opening a context; returns 0 with a reason if another vendor has replaced torch.cuda."""
    import torch

    if replaced := shim(torch.cuda):
        return Confirmation(0, replaced)
    # device_count() uses NVML if possible. torch.cuda.is_available() could initialize the driver, after which
    # forked child processes cannot use the devices.
    with warnings.catch_warnings(record=True) as logged:
        warnings.simplefilter("always")
        count = int(torch.cuda.device_count())
    rule = visible.of_build()
    names = rule.variables if rule is visible.CUDA else ("ROCR_VISIBLE_DEVICES", *rule.variables)
    limited = [f"{name}={os.environ[name] or '(empty)'}" for name in names if name in os.environ]
    reason = f"torch.cuda counts {count}{' with ' * bool(limited)}{', '.join(limited)}{rule.remark(count)}"
    # torch warns of a driver that does not work, and adds the place in its sources.
    faults = (str(warning.message).partition(" (Triggered")[0] for warning in logged)
    return Confirmation(count, "; ".join((reason, *map(_one_line, faults))))


def _one_line(text: str) -> str:
    return " ".join(text.split())


# Migration tools of other vendors make torch.cuda use their own device.

#: Modules whose import does so, and the key of the accelerator for the device.
KNOWN = {
    "torch_npu.contrib.transfer_to_npu": "npu",
    "torch_mlu.utils.gpu_migration": "mlu",
    "habana_frameworks.torch.gpu_migration": "hpu",
    "torch_supa": "supa",
    "torch_xmlir": "klxpu",
}
#: Functions that every such tool replaces.
_DETECTION_FUNCTIONS = ("is_available", "device_count")


def shim(cuda: Any) -> str:
    """Return a sentence about the device that torch.cuda uses; empty if torch.cuda is unchanged."""
    for name, key in KNOWN.items():
        if name in sys.modules:
            return (
                f"{name} is imported: torch.cuda stands for {key} devices, which accelerator {key!r} serves"
            )
    origin = _origin(cuda)
    return f"torch.cuda is not torch's own: {origin} has replaced it" if origin else ""


def _origin(cuda: Any) -> str:
    if isinstance(cuda, ModuleType) and cuda.__name__ != "torch.cuda":
        return cuda.__name__
    for name in _DETECTION_FUNCTIONS:
        home = str(getattr(getattr(cuda, name), "__module__", ""))
        if home.partition(".")[0] != "torch" or not f"{home}.".startswith("torch.cuda."):
            return home or f"an unknown {name}()"
    return ""
