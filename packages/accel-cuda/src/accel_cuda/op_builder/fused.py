# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: DeepSpeed's CUDA kernels where they can be compiled, plain torch where not."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from accel_core.op_builder import fused
from accel_cuda.op_builder.kernels import KernelBuilder

_log = logging.getLogger("accel_cuda")


class _FusedBuilder(KernelBuilder):
    """plain: the builder that serves the same function without a compiler."""

    plain: ClassVar[type[fused.FusedBuilder]]

    def compatibility(self) -> tuple[bool, str]:
        """Always; the sentence tells which of the two."""
        compiled, why = super().compatibility()
        return True, why if compiled else f"plain torch: {why}"

    def load(self, verbose: bool = True) -> Any:
        """The compiled op, else an object with the same function; a compilation that fails is told once."""
        if super().compatibility()[0]:
            try:
                return super().load(verbose=verbose)
            except Exception as error:
                _log.warning("%s can not be compiled, plain torch serves: %s", self.name, error)
        return self.plain().load(verbose=verbose)


class FusedAdamBuilder(_FusedBuilder):
    """Adam and AdamW."""

    NAME = fused.FusedAdamBuilder.NAME
    BUILD_VAR = fused.FusedAdamBuilder.BUILD_VAR
    UPSTREAM = ("deepspeed.ops.op_builder.fused_adam.FusedAdamBuilder",)
    plain = fused.FusedAdamBuilder


class FusedLambBuilder(_FusedBuilder):
    """LAMB."""

    NAME = fused.FusedLambBuilder.NAME
    BUILD_VAR = fused.FusedLambBuilder.BUILD_VAR
    UPSTREAM = ("deepspeed.ops.op_builder.fused_lamb.FusedLambBuilder",)
    plain = fused.FusedLambBuilder


class FusedLionBuilder(_FusedBuilder):
    """Lion."""

    NAME = fused.FusedLionBuilder.NAME
    BUILD_VAR = fused.FusedLionBuilder.BUILD_VAR
    UPSTREAM = ("deepspeed.ops.op_builder.fused_lion.FusedLionBuilder",)
    plain = fused.FusedLionBuilder
