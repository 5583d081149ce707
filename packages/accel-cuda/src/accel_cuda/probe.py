# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether CUDA or ROCm devices can be used: the build of torch, device files, and torch.cuda's own count."""

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

#: Fields of torch.version of which one is set in builds with these devices.
TORCH_FIELDS = ("cuda", "hip")
DEVICE_FILES = ("dev/nvidia[0-9]*", "dev/kfd", "dev/dxg")


def evidence() -> Evidence:
    """Build of torch and device files of the drivers; imports nothing."""
    if not module_exists("torch"):
        return Evidence(False, None, "torch is not installed")
    version = f"torch {distribution_version('torch') or 'of unknown version'}"
    built = [f"{name} {torch_build(name)}" for name in TORCH_FIELDS if torch_build(name)]
    if not built:
        return Evidence(False, None, f"{version} is built without {' or '.join(TORCH_FIELDS)}")
    have = f"{version} is built with {' and '.join(built)}"
    if not sys.platform.startswith("linux"):
        return Evidence(True, None, f"{have}; there are no device files to look for on {sys.platform}")
    files = device_files(DEVICE_FILES)
    found = f"{files[0]} exists" if files else f"no device file {' or '.join(DEVICE_FILES)}"
    return Evidence(True, bool(files), f"{have}; {found}")


def confirm() -> Confirmation:
    """Count without opening a context; another vendor's torch.cuda counts nothing here, and is named."""
    import torch

    if shim := shims.found(torch.cuda):
        return Confirmation(0, shim)
    # Through NVML where it is there: torch.cuda.is_available() could initialize the driver, and a process
    # that forks afterwards has children without devices.
    count = int(torch.cuda.device_count())
    value = os.environ.get(visible.VARIABLE)
    limited = "" if value is None else f" with {visible.VARIABLE}={value or '(empty)'}"
    return Confirmation(count, f"torch.cuda counts {count}{limited}")
