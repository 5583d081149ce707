# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ways in which an op can be computed."""

from __future__ import annotations

from enum import Enum


class Route(Enum):
    """What computes an op. A builder's `routes` has those that `load` tries, in order."""

    IMAGE = "image"
    SPIRV = "spir-v"
    COMPILED = "compiled here"
    TORCH_FUSED = "torch fused"
    VENDOR_OP = "vendor's op"
    HOST = "host library"
    UPSTREAM = "DeepSpeed's source"
    PLAIN = "plain torch"

    @property
    def meaning(self) -> str:
        """A sentence for the documentation."""
        return _MEANINGS[self]


_MEANINGS = {
    Route.IMAGE: "our kernels, as machine code for this device in the wheel",
    Route.SPIRV: "our kernels, as SPIR-V in the wheel",
    Route.COMPILED: "our source in the wheel, compiled once on this machine",
    Route.TORCH_FUSED: "torch's own fused operator",
    Route.VENDOR_OP: "operators of the vendor's runtime (`torch.ops.npu.…`), for the functions that have one",
    Route.HOST: "a library that runs on the host: compiled in the wheel, or of the system",
    Route.UPSTREAM: "the source in the installed DeepSpeed, compiled on this machine by the device's compiler",
    Route.PLAIN: "torch's operators",
}
