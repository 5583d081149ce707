# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer on a device."""

import os

import pytest
import torch

from accel_ops.quantizer import QuantizerFunctions
from accel_xpu import XPU_Accelerator


def test_quantizer_gives_the_bits_of_plain_torch_and_names_its_route() -> None:
    builder = XPU_Accelerator().create_op_builder("QuantizerBuilder")
    op, plain, values = builder.load(), QuantizerFunctions(), torch.randn(4, 64)
    assert builder.reason == "spir-v" or builder.reason.startswith("plain torch: ")
    found, wanted = op.quantize(values.to("xpu"), 4, 8, 0), plain.quantize(values, 4, 8, 0)
    assert torch.equal(found[0].cpu(), wanted[0])
    assert torch.equal(found[1].cpu(), wanted[1])


@pytest.mark.skipif("ACCEL_SIM" not in os.environ, reason="not run: a real device is here")
def test_simulated_device_has_no_libsycl() -> None:
    builder = XPU_Accelerator().create_op_builder("QuantizerBuilder")
    builder.load()
    assert builder.reason == "plain torch: this process has no libsycl: this torch is not built for XPU"
