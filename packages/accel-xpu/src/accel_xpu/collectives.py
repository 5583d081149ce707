# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The backend of torch.distributed for XPUs: oneCCL's bindings if they work, else torch's own."""

from __future__ import annotations

from accel_core.vendor import Bindings, Collectives

ONECCL = Bindings("oneccl_bindings_for_pytorch", "oneccl_bind_pt", backend="ccl", device="xpu")


def choose() -> Collectives:
    """Return `ccl` if the bindings import, fit this torch and support xpu; else `xccl`. Does not raise."""
    return ONECCL.or_else("xccl")
