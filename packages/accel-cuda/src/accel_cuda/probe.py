# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for CUDA and ROCm devices: the build of torch, device files, and the device count of torch.cuda."""

from __future__ import annotations

import os
import sys

from accel_core.vendor import (
    Confirmation,
    Evidence,
    device_files,
    distribution_version,
    module_exists,
    torch_build,
)
from accel_cuda import shims, visible

#: Fields of torch.version; builds for these devices set one of them.
TORCH_FIELDS = ("cuda", "hip")
DEVICE_FILES = ("dev/nvidia[0-9]*", "dev/kfd", "dev/dxg")


def evidence() -> Evidence:
    """Check the build of torch and the drivers' device files; imports nothing."""
    if not module_exists("torch"):
        return Evidence(False, None, "torch is not installed")
    version = f"torch {distribution_version('torch') or 'of unknown version'}"
    files = device_files(DEVICE_FILES)
    linux = sys.platform.startswith("linux")
    built = [f"{name} {torch_build(name)}" for name in TORCH_FIELDS if torch_build(name)]
    if not built:
        return Evidence(
            False, bool(files) if linux else None, f"{version} is built without {' or '.join(TORCH_FIELDS)}"
        )
    have = f"{version} is built with {' and '.join(built)}"
    if not linux:
        return Evidence(True, None, f"{have}; there are no device files to look for on {sys.platform}")
    found = f"{files[0]} exists" if files else f"no device file {' or '.join(DEVICE_FILES)}"
    return Evidence(True, bool(files), f"{have}; {found}")


def confirm() -> Confirmation:
    """Count devices without opening a context; returns 0 with a reason if another vendor has replaced torch.cuda."""
    import torch

    if shim := shims.found(torch.cuda):
        return Confirmation(0, shim)
    # device_count() uses NVML if possible. torch.cuda.is_available() could initialize the driver, after which
    # forked child processes cannot use the devices.
    count = int(torch.cuda.device_count())
    value = os.environ.get(visible.VARIABLE)
    limited = "" if value is None else f" with {visible.VARIABLE}={value or '(empty)'}"
    return Confirmation(count, f"torch.cuda counts {count}{limited}")
