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
from typing import Any

import torch
from typing_extensions import override

from accel_core.errors import in_short
from accel_core.op_builder import Implementation
from accel_core.op_builder.source_builder import SourceBuilder
from accel_cuda.op_builder import toolkit
from accel_ops.inference import INFERENCE, INFERENCE_CORE
from accel_ops.op import LoadedOp, Op, Route, Unusable
from accel_ops.optimizers import fused
from accel_ops.quantizers.fp_quantizer import FP_QUANTIZER
from accel_ops.torch_fallbacks import EVOFORMER_ATTN, RANDOM_LTD, SPATIAL_INFERENCE

_log = logging.getLogger("accel_cuda")


class KernelBuilder(SourceBuilder):
    """A builder of DeepSpeed that needs the device's compiler."""

    @override
    def compatibility(self) -> tuple[bool, str]:
        """Return whether nvcc (hipcc) is installed and fits this torch, and `SourceBuilder` is compatible."""
        missing = toolkit.lack()
        return (False, missing) if missing else super().compatibility()


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


#: {function: positions of the tensors that its kernel reads or writes as one of the types}.
Reads = Mapping[str, Sequence[int]]


def deepspeeds_source(
    op: Op, module: str, reads: Reads | None = None, types: Sequence[torch.dtype] = ()
) -> Route:
    """Return the route with DeepSpeed's kernels of an op, compiled from its builder in `module`.

    reads, types: of kernels that would misread some tensors, which these are and what they are read as. They also have
        to be contiguous. Others, and functions that are not named, are plain torch.
    """
    source = _builder(op.class_name, module, op=op.name)()

    def load() -> LoadedOp:
        try:
            compiled = source.load()
        except Exception as error:
            _log.warning("%s cannot be compiled, plain torch serves: %s", source.name, error)
            raise Unusable(f"{source.name} cannot be compiled: {in_short(error)}") from error
        functions = compiled if reads is None else op.plain()
        for name, positions in (reads or {}).items():
            if hasattr(compiled, name):
                both = getattr(compiled, name), getattr(functions, name)
                setattr(functions, name, _chosen(*both, positions, types))
        return LoadedOp(functions, lambda: source.reason)

    def lack() -> str:
        return "" if source.is_compatible() else source.reason

    return Route((Implementation.UPSTREAM,), lambda: source.reason, load, lack)


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


FusedLambBuilder = fused.LAMB.builder(__name__, deepspeeds_source(fused.LAMB, "fused_lamb"))
InferenceBuilder = INFERENCE.builder(__name__, deepspeeds_source(INFERENCE, "transformer_inference"))
InferenceCoreBuilder = INFERENCE_CORE.builder(
    __name__, deepspeeds_source(INFERENCE_CORE, "inference_core_ops")
)
#: Codes of small numbers are not the same in both.
FPQuantizerBuilder = FP_QUANTIZER.builder(__name__, deepspeeds_source(FP_QUANTIZER, "fp_quantizer"))

_HALVES = (torch.float16, torch.bfloat16)
#: The kernels need CUTLASS.
EvoformerAttnBuilder = EVOFORMER_ATTN.builder(
    __name__,
    deepspeeds_source(
        EVOFORMER_ATTN,
        "evoformer_attn",
        {"attention": (0, 1, 2, 5), "attention_bwd": (0, 1, 2, 3, 4, 9, 10, 11)},
        _HALVES,
    ),
)
#: The kernels move numbers of two bytes or of float32.
RandomLTDBuilder = RANDOM_LTD.builder(
    __name__,
    deepspeeds_source(
        RANDOM_LTD,
        "random_ltd",
        {"token_gather": (0,), "token_scatter_": (0, 1), "mask_gather_bert": (0,), "mask_gather_gpt": (0,)},
        (*_HALVES, torch.float32),
    ),
)
#: Of images the kernels read channels last, which is another order in memory: these are plain torch's.
SpatialInferenceBuilder = SPATIAL_INFERENCE.builder(
    __name__,
    deepspeeds_source(
        SPATIAL_INFERENCE,
        "spatial_inference",
        {
            "nhwc_bias_add": (0, 1),
            "nhwc_bias_add_add": (0, 1, 2),
            "nhwc_bias_add_bias_add": (0, 1, 2, 3),
        },
        (torch.float16,),
    ),
)
