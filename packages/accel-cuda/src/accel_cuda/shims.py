# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Other vendors' migration tools, which make torch.cuda use their own device."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

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


def found(cuda: Any) -> str:
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
