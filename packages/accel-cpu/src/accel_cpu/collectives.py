# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The backend of torch.distributed for CPU processes: oneCCL's if it works, else gloo."""

from __future__ import annotations

from accel_core.vendor import Bindings, Collectives

ONECCL = Bindings("oneccl_bindings_for_pytorch", "oneccl_bind_pt", backend="ccl", device="cpu")


def choose() -> Collectives:
    """Return `ccl` if oneCCL's bindings import, fit this torch and register it; else `gloo`. Does not raise."""
    return ONECCL.or_else("gloo")
