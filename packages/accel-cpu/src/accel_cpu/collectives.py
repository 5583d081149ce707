# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which backend torch.distributed uses between CPU processes: oneCCL's where it works, gloo otherwise."""

from __future__ import annotations

from accel_core.vendor import Bindings, Collectives

ONECCL = Bindings("oneccl_bindings_for_pytorch", "oneccl_bind_pt", backend="ccl", device="cpu")


def choose() -> Collectives:
    """`ccl` if oneCCL's bindings import, are built for this torch and register it; else `gloo`. Never raises."""
    return ONECCL.or_else("gloo")
