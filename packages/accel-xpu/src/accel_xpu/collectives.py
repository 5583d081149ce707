# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which backend torch.distributed uses between XPUs: oneCCL's bindings where they work, else torch's own."""

from __future__ import annotations

from accel_core.vendor import Bindings, Collectives

ONECCL = Bindings("oneccl_bindings_for_pytorch", "oneccl_bind_pt", backend="ccl", device="xpu")


def choose() -> Collectives:
    """`ccl` if the bindings import, are built for this torch and serve xpu; else `xccl`. Never raises."""
    return ONECCL.or_else("xccl")
