# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops with DeepSpeed's CUDA kernels for the types that these read, if they can be compiled; else in plain torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch

from accel_core.op_builder import Implementation, OpFunctions
from accel_cuda.op_builder.kernels import or_plain
from accel_ops import plain

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


class EvoformerAttnBuilder(Mixed, or_plain(plain.EvoformerAttnBuilder, "evoformer_attn")):  # type: ignore[misc]
    """Attention of AlphaFold's Evoformer; the kernels need CUTLASS."""

    types = _HALVES
    reads: ClassVar[Reads] = {"attention": (0, 1, 2, 5), "attention_bwd": (0, 1, 2, 3, 4, 9, 10, 11)}


class RandomLTDBuilder(Mixed, or_plain(plain.RandomLTDBuilder, "random_ltd")):  # type: ignore[misc]
    """Random layerwise token dropping."""

    types = _MOVED
    reads: ClassVar[Reads] = {
        "token_gather": (0,),
        "token_scatter_": (0, 1),
        "mask_gather_bert": (0,),
        "mask_gather_gpt": (0,),
    }


class FPQuantizerBuilder(or_plain(plain.FPQuantizerBuilder, "fp_quantizer")):  # type: ignore[misc]
    """Weights in few bits with an exponent. Codes of small numbers are not the same in both."""

    get_default_quant_dtype = staticmethod(plain.FPQuantizerBuilder.get_default_quant_dtype)
    get_quant_range = staticmethod(plain.FPQuantizerBuilder.get_quant_range)


class SpatialInferenceBuilder(Mixed, or_plain(plain.SpatialInferenceBuilder, "spatial_inference")):  # type: ignore[misc]
    """Sums with biases for diffusion models."""

    types = _HALF
    reads: ClassVar[Reads] = {
        # Of images the kernel reads channels last, which is another order in memory: these are plain torch's.
        "nhwc_bias_add": (0, 1),
        "nhwc_bias_add_add": (0, 1, 2),
        "nhwc_bias_add_bias_add": (0, 1, 2, 3),
    }
