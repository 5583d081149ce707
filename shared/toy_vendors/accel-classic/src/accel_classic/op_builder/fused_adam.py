# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam over many tensors."""

from __future__ import annotations

from accel_classic.op_builder.builder import SYCLOpBuilder


class FusedAdamBuilder(SYCLOpBuilder):
    """Its function only says who it is: which builder serves is the question here."""

    BUILD_VAR = "DS_BUILD_FUSED_ADAM"
    NAME = "fused_adam"

    def __init__(self) -> None:
        super().__init__(name=self.NAME)

    def absolute_name(self) -> str:
        return "accel_classic.fused_adam"

    def sources(self) -> list[str]:
        return [self.sycl_kernel_path("../fused_adam.py")]
