# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A QuantizedParameter that is made of a tensor of the host cannot be moved."""

import types

import torch
from deepspeed.linear import quantization
from deepspeed.ops.fp_quantizer import quantize

# Neither a GPU nor a compiler: the parameter is not quantized before it moves.
quantize.FPQuantizerBuilder.load = lambda *_: types.SimpleNamespace()
quantization.get_accelerator = lambda: types.SimpleNamespace(on_accelerator=lambda _: False)
parameter = quantization.QuantizedParameter(torch.ones(512))
try:
    parameter.to(torch.device("meta"))
except AttributeError as error:
    print("to(device):", error)
