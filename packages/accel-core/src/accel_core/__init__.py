# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The plug-in system for DeepSpeed accelerators.

Importing this package registers import hooks for DeepSpeed. It selects no accelerator and imports neither
torch nor any vendor package. Its names are loaded at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core import activate

if TYPE_CHECKING:
    from accel_core.__about__ import __version__
    from accel_core.api import (
        device_index,
        explain,
        get_accelerator,
        is_current_accelerator_supported,
        set_accelerator,
        using,
    )
    from accel_core.device import TorchDeviceAccelerator
    from accel_core.devices import SUPPORTED_ACCELERATOR_LIST
    from accel_core.errors import AccelError
    from accel_core.interface import DeepSpeedAccelerator
    from accel_core.op_builder import NotImplementedBuilder, OpBuilder, OpTable
    from accel_core.vendor import INTERFACE_VERSION, Confirmation, Evidence, Support, Trait, Vendor

_EXPORTS = {
    "device_index": "api",
    "get_accelerator": "api",
    "set_accelerator": "api",
    "using": "api",
    "is_current_accelerator_supported": "api",
    "explain": "api",
    "SUPPORTED_ACCELERATOR_LIST": "devices",
    "DeepSpeedAccelerator": "interface",
    "TorchDeviceAccelerator": "device",
    "Vendor": "vendor",
    "Evidence": "vendor",
    "Confirmation": "vendor",
    "Trait": "vendor",
    "Support": "vendor",
    "INTERFACE_VERSION": "vendor",
    "OpBuilder": "op_builder",
    "OpTable": "op_builder",
    "NotImplementedBuilder": "op_builder",
    "AccelError": "errors",
    "__version__": "__about__",
}

__all__ = [
    "INTERFACE_VERSION",
    "SUPPORTED_ACCELERATOR_LIST",
    "AccelError",
    "Confirmation",
    "DeepSpeedAccelerator",
    "Evidence",
    "NotImplementedBuilder",
    "OpBuilder",
    "OpTable",
    "Support",
    "TorchDeviceAccelerator",
    "Trait",
    "Vendor",
    "__version__",
    "device_index",
    "explain",
    "get_accelerator",
    "is_current_accelerator_supported",
    "set_accelerator",
    "using",
]

activate.register()

__getattr__ = activate.lazy_exports(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
