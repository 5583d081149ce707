# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A torch for the doctor's tests: as much of it as the doctor's children touch, and its way with backend extensions.

The situation "a backend extension breaks import torch" has the real one.
"""

import os
from importlib.metadata import entry_points
from types import SimpleNamespace

from torch.version import __version__ as __version__

_holder = ["privateuseone"]
_C = SimpleNamespace(_get_privateuse1_backend_name=lambda: _holder[0])


def claim_privateuse1(name):
    """What `torch.utils.rename_privateuse1_backend` does: once a process."""
    if _holder[0] not in ("privateuseone", name):
        raise RuntimeError(
            f"torch.register_privateuse1_backend() has already been set! Current backend: {_holder[0]}"
        )
    _holder[0] = name


if os.path.exists(os.path.join(os.path.dirname(__file__), "BROKEN")):
    raise ImportError("libtorch_cpu.so: cannot open shared object file: No such file or directory")

if os.getenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
    for point in entry_points(group="torch.backends"):
        try:
            point.load()()
        except Exception as err:
            raise RuntimeError(
                f"Failed to load the backend extension: {point.name}. "
                f"You can disable extension auto-loading with TORCH_DEVICE_BACKEND_AUTOLOAD=0."
            ) from err
