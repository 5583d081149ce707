# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""SwiGLU over torch_sdaa's op, as far as its schema is known from public calls."""

import pytest
import torch

from accel_ops.inference import RELU, SIGLU, CoreFunctions
from accel_sdaa import SDAA_Accelerator


@pytest.mark.parametrize(
    ("channels", "kind", "reached"), [(32, SIGLU, True), (24, SIGLU, False), (32, RELU + 3, False)]
)
@pytest.mark.parametrize("biased", [True, False])
def test_gates_reach_the_op_in_its_layout(channels, kind, reached, biased, monkeypatch):
    op, calls = torch.ops.sdaa.swiglu, []

    def counted(*arguments):
        calls.append(arguments[1:])
        return op(*arguments)

    monkeypatch.setattr(torch.ops.sdaa, "swiglu", counted)
    functions = SDAA_Accelerator().create_op_builder("InferenceCoreBuilder").load()
    x, bias = torch.randn(2, 3, channels), torch.randn(channels) if biased else None
    wanted, found = torch.empty(2, 3, channels // 2), torch.empty(2, 3, channels // 2, device="sdaa")
    CoreFunctions().gated_activation(wanted, x, bias, kind)
    functions.gated_activation(found, x.to("sdaa"), bias.to("sdaa") if bias is not None else None, kind)
    assert torch.allclose(found.cpu(), wanted, atol=1e-6)
    assert calls == ([(6, 1, channels // 2)] if reached else [])
