# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Norms on Habana's op, compared with plain torch."""

import pytest
import torch

from accel_hpu.accelerator import HPU_Accelerator
from accel_ops import inference


@pytest.fixture(scope="module")
def accelerator() -> HPU_Accelerator:
    return HPU_Accelerator()


@pytest.mark.parametrize("gamma_type", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_is_plain_torch_s(accelerator, dtype, gamma_type):
    builder = accelerator.create_op_builder("InferenceBuilder")
    assert "torch.ops.hpu.rms_norm" in builder.reason
    x, gamma = torch.randn(3, 5, 8).to(dtype), torch.randn(8).to(gamma_type)
    found = builder.load().rms_norm(x.to("hpu"), gamma.to("hpu"), 1e-5)
    assert found.dtype == dtype
    torch.testing.assert_close(found.cpu(), inference.InferenceBuilder().load().rms_norm(x, gamma, 1e-5))
