# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam over many tensors in one call: DeepSpeed's default optimizer."""

from __future__ import annotations

from types import ModuleType

from typing_extensions import override

from accel_core.op_builder import OpBuilder


class FusedAdamBuilder(OpBuilder):
    """Serves `accel_toy.fused_adam`; nothing is compiled."""

    NAME = "fused_adam"
    BUILD_VAR = "DS_BUILD_FUSED_ADAM"

    @override
    def compatibility(self) -> tuple[bool, str]:
        return True, "written in Python"

    @override
    def load(self, verbose: bool = True) -> ModuleType:
        from accel_toy import fused_adam

        return fused_adam
