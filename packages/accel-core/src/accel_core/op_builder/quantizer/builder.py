# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builder of DeepSpeed's quantizer in plain torch."""

from __future__ import annotations

from typing import Any, ClassVar

from accel_core.op_builder.base import OpBuilder
from accel_core.op_builder.quantizer.functions import QuantizerFunctions
from accel_core.op_builder.routes import Route


class QuantizerBuilder(OpBuilder):
    """Quantization in groups for ZeRO++ (qwZ, hpZ, qgZ, LoCo) and for weights."""

    NAME = "quantizer"
    BUILD_VAR = "DS_BUILD_QUANTIZER"
    ROUTES: ClassVar[tuple[Route, ...]] = (Route.PLAIN,)

    def compatibility(self) -> tuple[bool, str]:
        """Return True: plain torch runs everywhere."""
        return True, "plain torch"

    def load(self, verbose: bool = True) -> Any:
        """Return an object with upstream's functions."""
        return QuantizerFunctions()
