# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops with kernels and plain torch behind them: kernels that get everything, or nothing, and silent failures."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import torch
from accel_good.accelerator import GOOD_Accelerator

from accel_core.op_builder import Implementation
from accel_core.op_builder.source_builder import SourceBuilder
from accel_ops import fused_optimizers, plain
from broken import breaks

_log = logging.getLogger("accel_good")
_READ = "op_compiled.kernels_get_the_tensors_that_they_read"
_SERVE = "op_compiled.kernels_serve_where_they_compile"
_TOLD = "op_compiled.kernels_that_do_not_compile_are_told"
#: While nobody pretends a compiler, nothing is compiled.
_REAL = SourceBuilder.load


class _Chosen:
    def __init__(self, compiled: Any, other: Any) -> None:
        self._both = compiled, other

    def __getattr__(self, name: str) -> Any:
        compiled, other = (getattr(each, name) for each in self._both)

        def function(*arguments: torch.Tensor) -> Any:
            fits = all(each.dtype == torch.float16 and each.is_contiguous() for each in arguments)
            return (compiled if fits else other)(*arguments)

        return function

    def __dir__(self) -> list[str]:
        return dir(self._both[1])


class _Spatial(SourceBuilder):
    NAME = "spatial_inference"
    BUILD_VAR = "DS_BUILD_SPATIAL_INFERENCE"
    UPSTREAM = ("deepspeed.ops.op_builder.spatial_inference.SpatialInferenceBuilder",)
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.UPSTREAM, Implementation.PLAIN)
    plain = plain.SpatialInferenceBuilder
    chooses, tells = True, True

    def compatibility(self) -> tuple[bool, str]:
        return True, "plain torch"

    def load(self, verbose: bool = True) -> Any:
        functions = self.plain().load(verbose=verbose)
        if SourceBuilder.load is _REAL:
            return functions
        try:
            loaded = super().load(verbose=verbose)
        except RuntimeError as error:
            if self.tells:
                _log.warning("%s cannot be compiled: %s", self.name, error)
            return functions
        return _Chosen(loaded, functions) if self.chooses else loaded


class _Lamb(_Spatial):
    NAME = "fused_lamb"
    BUILD_VAR = "DS_BUILD_FUSED_LAMB"
    plain = fused_optimizers.FusedLambBuilder

    def load(self, verbose: bool = True) -> Any:
        return self.plain().load(verbose=verbose)


def _with(name: str, builder: type[SourceBuilder]) -> type[GOOD_Accelerator]:
    class Compiled(GOOD_Accelerator):
        def get_op_builder(self, class_name: str) -> Any:
            return builder if class_name == name else super().get_op_builder(class_name)

    return Compiled


_SPATIAL = "SpatialInferenceBuilder"
breaks(f"{_READ}[{_SPATIAL}]", name="KernelsGetEveryTensor")(
    _with(_SPATIAL, type(_SPATIAL, (_Spatial,), {"chooses": False}))
)
breaks(f"{_TOLD}[{_SPATIAL}]", name="FailedCompilationIsSilent")(
    _with(_SPATIAL, type(_SPATIAL, (_Spatial,), {"tells": False}))
)
breaks(f"{_SERVE}[FusedLambBuilder]", f"{_TOLD}[FusedLambBuilder]", name="PlainTorchServesAlways")(
    _with("FusedLambBuilder", type("FusedLambBuilder", (_Lamb,), {}))
)
