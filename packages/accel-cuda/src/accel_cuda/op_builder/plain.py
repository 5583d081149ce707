# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer: DeepSpeed's CUDA kernels, which read float16 only, if they can be compiled; else plain torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from typing_extensions import override

from accel_core.op_builder import quantizer
from accel_cuda.op_builder.kernels import or_plain

#: {function: positions of the tensors that its kernel reads as float16}.
_READS = {
    "quantize": (0,),
    "swizzle_quant": (0,),
    "loco_swizzle_quant": (0, 1),
    "loco_quantized_reduction": (2,),
    "quantized_reduction": (),
    "dequantize": (),
    "dequantize_fp32": (),
}


class CompiledFunctions(quantizer.QuantizerFunctions):
    """The functions of a compiled quantizer; in plain torch those that it lacks, and tensors that it would misread."""

    def __init__(self, compiled: Any) -> None:
        # Its functions accept only its own enumeration.
        for name in ("QuantizationType", "Symmetric", "Asymmetric"):
            setattr(self, name, getattr(compiled, name))
        for name, positions in _READS.items():
            if hasattr(compiled, name):
                setattr(self, name, _chosen(getattr(compiled, name), getattr(self, name), positions))


def _chosen(
    compiled: Callable[..., Any], plain: Callable[..., Any], positions: Sequence[int]
) -> Callable[..., Any]:
    def function(*arguments: Any) -> Any:
        read = [arguments[position] for position in positions]
        fits = all(tensor.dtype == torch.float16 and tensor.is_contiguous() for tensor in read)
        return (compiled if fits else plain)(*arguments)

    return function


class QuantizerBuilder(or_plain(quantizer.QuantizerBuilder, "quantizer")):  # type: ignore[misc]
    """Quantization in groups for ZeRO++ (qwZ, hpZ, qgZ, LoCo) and for weights."""

    @override
    def load(self, verbose: bool = True) -> Any:
        """Return an object with upstream's functions."""
        loaded = super().load(verbose=verbose)
        return loaded if isinstance(loaded, quantizer.QuantizerFunctions) else CompiledFunctions(loaded)
