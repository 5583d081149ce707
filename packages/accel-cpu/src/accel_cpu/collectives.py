# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which backend torch.distributed uses between CPU processes: oneCCL's where it works, gloo otherwise."""

from __future__ import annotations

from typing import NamedTuple

from accel_core.bindings import Bindings

ONECCL = Bindings("oneccl_bindings_for_pytorch", "oneccl_bind_pt", backend="ccl", device="cpu")


class Collectives(NamedTuple):
    """The name for `torch.distributed.init_process_group`, and the sentence why."""

    backend: str
    reason: str


def choose() -> Collectives:
    """`ccl` if oneCCL's bindings import, are built for this torch and register it; else `gloo`. Never raises."""
    fault = ONECCL.fault()
    if fault is None:
        return Collectives("ccl", f"{ONECCL.module} is installed and serves this torch")
    return Collectives("gloo", fault)
