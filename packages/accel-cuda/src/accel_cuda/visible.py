# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""CUDA_VISIBLE_DEVICES as the CUDA runtime reads it, and HIP's variable."""

from __future__ import annotations

import os

from accel_core.vendor import VisibleDevices, torch_build

VARIABLE = "CUDA_VISIBLE_DEVICES"
#: Numbers as strtoul() reads them, and UUIDs of GPUs and of MIG instances or their beginnings.
CUDA = VisibleDevices(
    (VARIABLE,),
    number=r"\s*([+-]?\d+)",
    name="(GPU|MIG)-",
    exclusive=True,
    container="NVIDIA_VISIBLE_DEVICES",
)
#: Its numbers count among the devices that ROCR_VISIBLE_DEVICES leaves.
HIP = VisibleDevices(
    ("HIP_VISIBLE_DEVICES", VARIABLE), number=r"(0|[1-9]\d*)$", name="GPU-", unset_if_empty=True
)


def of_build() -> VisibleDevices:
    """Return how the runtime of this build of torch reads its variables."""
    return HIP if torch_build("hip") else CUDA


def variables() -> list[str]:
    """Return the variable that decides, and CUDA's."""
    return list(dict.fromkeys((of_build().decides() or VARIABLE, VARIABLE)))


def entry(index: int) -> int | str | None:
    """Return the driver's ordinal or the UUID of device `index`; None if it is not visible."""
    value = os.environ.get(VARIABLE)
    if value is None:
        return index
    listed = list(CUDA.read(value).values())
    return listed[index] if index < len(listed) else None
