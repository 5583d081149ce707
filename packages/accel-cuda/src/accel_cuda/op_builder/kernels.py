# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's CUDA kernels, compiled from its sources when the op is first loaded; in their absence plain torch.

Some kernels read certain types only: functions in plain torch take the other tensors.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from typing_extensions import override

from accel_core.op_builder import Implementation, OpBuilder, OpFunctions
from accel_core.op_builder.source_builder import SourceBuilder
from accel_cuda.op_builder import toolkit
from accel_ops import inference, torch_fallbacks
from accel_ops.op import RoutedBuilder
from accel_ops.optimizers import fused
from accel_ops.quantizers import fp_quantizer

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


def or_plain(plain: type[RoutedBuilder], module: str) -> type[KernelOrPlainBuilder]:
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
            **plain.OP.members,
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
            return False, "DeepSpeed's GPUDirect Storage needs libaio.h (Debian: apt install libaio-dev)"
        return super().compatibility()


FusedLambBuilder = or_plain(fused.FusedLambBuilder, "fused_lamb")
InferenceBuilder = or_plain(inference.InferenceBuilder, "transformer_inference")
InferenceCoreBuilder = or_plain(inference.InferenceCoreBuilder, "inference_core_ops")

_HALF = (torch.float16,)
_HALVES = (torch.float16, torch.bfloat16)
#: A kernel that moves numbers of two bytes or of float32.
_MOVED = (*_HALVES, torch.float32)

#: {function: positions of the tensors that its kernel reads or writes as one of the types}.
Reads = Mapping[str, Sequence[int]]


class Mixed:
    """Mix-in of a builder: of a compiled op, functions in plain torch for the tensors that a kernel would misread.

    reads, types: which tensors are looked at, and what their types may be. They also have to be contiguous.
    """

    plain: ClassVar[Any]
    reads: ClassVar[Reads]
    types: ClassVar[Sequence[torch.dtype]]
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.UPSTREAM, Implementation.PLAIN)

    def load(self, verbose: bool = True) -> Any:
        """Return an object with upstream's functions."""
        loaded = super().load(verbose=verbose)  # type: ignore[misc]
        if isinstance(loaded, OpFunctions):
            return loaded
        functions = self.plain().load(verbose=verbose)
        for name, positions in self.reads.items():
            if hasattr(loaded, name):
                kernel, other = getattr(loaded, name), getattr(functions, name)
                setattr(functions, name, _chosen(kernel, other, positions, self.types))
        return functions


def _chosen(
    compiled: Callable[..., Any],
    plain: Callable[..., Any],
    positions: Sequence[int],
    types: Sequence[torch.dtype],
) -> Callable[..., Any]:
    def function(*arguments: Any) -> Any:
        read = [arguments[position] for position in positions]
        fits = all(tensor.dtype in types and tensor.is_contiguous() for tensor in read)
        return (compiled if fits else plain)(*arguments)

    return function


class EvoformerAttnBuilder(Mixed, or_plain(torch_fallbacks.EvoformerAttnBuilder, "evoformer_attn")):  # type: ignore[misc]
    """Attention of AlphaFold's Evoformer; the kernels need CUTLASS."""

    types = _HALVES
    reads: ClassVar[Reads] = {"attention": (0, 1, 2, 5), "attention_bwd": (0, 1, 2, 3, 4, 9, 10, 11)}


class RandomLTDBuilder(Mixed, or_plain(torch_fallbacks.RandomLTDBuilder, "random_ltd")):  # type: ignore[misc]
    """Random layerwise token dropping."""

    types = _MOVED
    reads: ClassVar[Reads] = {
        "token_gather": (0,),
        "token_scatter_": (0, 1),
        "mask_gather_bert": (0,),
        "mask_gather_gpt": (0,),
    }


#: Codes of small numbers are not the same in both.
FPQuantizerBuilder = or_plain(fp_quantizer.FPQuantizerBuilder, "fp_quantizer")


class SpatialInferenceBuilder(Mixed, or_plain(torch_fallbacks.SpatialInferenceBuilder, "spatial_inference")):  # type: ignore[misc]
    """Sums with biases for diffusion models."""

    types = _HALF
    reads: ClassVar[Reads] = {
        # Of images the kernel reads channels last, which is another order in memory: these are plain torch's.
        "nhwc_bias_add": (0, 1),
        "nhwc_bias_add_add": (0, 1, 2),
        "nhwc_bias_add_bias_add": (0, 1, 2, 3),
    }
