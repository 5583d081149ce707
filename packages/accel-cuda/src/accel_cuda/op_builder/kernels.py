# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's CUDA kernels, compiled from its sources when the op is first loaded."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from accel_core.op_builder import Implementation, OpBuilder
from accel_core.op_builder.source_builder import SourceBuilder
from accel_cuda.op_builder import toolkit

_log = logging.getLogger("accel_cuda")


class KernelBuilder(SourceBuilder):
    """A builder of DeepSpeed that needs the device's compiler."""

    @override
    def compatibility(self) -> tuple[bool, str]:
        """Return whether nvcc (hipcc) is installed and fits this torch, and `SourceBuilder` is compatible."""
        missing = toolkit.lack()
        return (False, missing) if missing else super().compatibility()


class KernelOrPlainBuilder(KernelBuilder):
    """A builder of DeepSpeed that falls back to plain torch.

    plain: builder of the same functions in plain torch.
    """

    plain: ClassVar[type[OpBuilder]]
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.UPSTREAM, Implementation.PLAIN)

    @override
    def compatibility(self) -> tuple[bool, str]:
        """Return True, and which of the two implementations is used."""
        compiled, why = super().compatibility()
        return True, why if compiled else f"plain torch: {why}"

    @override
    def load(self, verbose: bool = True) -> Any:
        """Return the compiled op, else the one in plain torch; warns if the compilation fails."""
        if super().compatibility()[0]:
            try:
                return super().load(verbose=verbose)
            except Exception as error:
                _log.warning("%s cannot be compiled, plain torch serves: %s", self.name, error)
        return self.plain().load(verbose=verbose)


def or_plain(plain: type[OpBuilder], module: str) -> type[KernelOrPlainBuilder]:
    """Return a builder for DeepSpeed's class of the same name in `module`, with a fallback to `plain`."""
    return type(
        plain.__name__,
        (KernelOrPlainBuilder,),
        {
            "NAME": plain.NAME,
            "BUILD_VAR": plain.BUILD_VAR,
            "UPSTREAM": (f"deepspeed.ops.op_builder.{module}.{plain.__name__}",),
            "plain": plain,
            "__module__": __name__,
            "__doc__": plain.__doc__,
        },
    )


def _builder(class_name: str, module: str, op: str = "", variable: str = "") -> type[KernelBuilder]:
    """Return a builder for DeepSpeed's class in `module`. op, variable: if they differ from the module's name."""
    return type(
        class_name,
        (KernelBuilder,),
        {
            "NAME": op or module,
            "BUILD_VAR": f"DS_BUILD_{(variable or op or module).upper()}",
            "UPSTREAM": (f"deepspeed.ops.op_builder.{module}.{class_name}",),
            "__module__": __name__,
            "__doc__": f"{class_name} of DeepSpeed.",
        },
    )


DeepCompileBuilder = _builder("DeepCompileBuilder", "dc", variable="deep_compile")
InferenceCutlassBuilder = _builder(
    "InferenceCutlassBuilder", "inference_cutlass_builder", op="cutlass_ops", variable="cutlass_ops"
)
RaggedOpsBuilder = _builder("RaggedOpsBuilder", "ragged_ops", op="ragged_device_ops")
RaggedUtilsBuilder = _builder("RaggedUtilsBuilder", "ragged_utils", op="ragged_ops")
SparseAttnBuilder = _builder("SparseAttnBuilder", "sparse_attn")
StochasticTransformerBuilder = _builder("StochasticTransformerBuilder", "stochastic_transformer")
TransformerBuilder = _builder("TransformerBuilder", "transformer")


class GDSBuilder(KernelBuilder):
    """GPUDirect Storage: file I/O to and from device memory; needs libaio, too."""

    NAME = "gds"
    BUILD_VAR = "DS_BUILD_GDS"
    UPSTREAM = ("deepspeed.ops.op_builder.gds.GDSBuilder",)

    @override
    def compatibility(self) -> tuple[bool, str]:
        """Return whether libaio's header is in the compiler's include path, too."""
        folders = [*os.environ.get("CPATH", "").split(os.pathsep), "/usr/local/include", "/usr/include"]
        if not any(Path(folder, "libaio.h").is_file() for folder in folders if folder):
            return (
                False,
                "DeepSpeed's sources of GPUDirect Storage need libaio.h (Debian: apt install libaio-dev)",
            )
        return super().compatibility()
