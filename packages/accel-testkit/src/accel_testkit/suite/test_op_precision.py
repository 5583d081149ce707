# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op precision: activations of half-precision numbers."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect

pytestmark = pytest.mark.tier("device")

#: Roundings of the type that a result may be apart, in units in the last place: one at the end, and float32's.
_ROUNDINGS = 1.02
#: deepspeed.inference.v2.inference_utils.ActivationType.GATED_GELU.
_GATED_GELU, _GATED_SILU = 3, 5


@pytest.mark.needs("InferenceCoreBuilder")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_activations_round_once(accelerator: DeepSpeedAccelerator, dtype: torch.dtype) -> None:
    """A gate times a value of half precision is computed in float32 at least, with a bias and without."""
    if dtype not in accelerator.supported_dtypes():
        return
    op, device = accelerator.create_op_builder("InferenceCoreBuilder").load(), accelerator.device()
    generator = torch.Generator().manual_seed(43)
    x, bias = ((torch.rand(shape, generator=generator) * 4 - 2).to(dtype) for shape in ((64, 48), (48,)))
    for kind, given in itertools.product((_GATED_GELU, _GATED_SILU), (bias, None)):
        out = torch.full((64, 24), torch.nan, dtype=dtype, device=device)
        op.gated_activation(out, x.to(device), None if given is None else given.to(device), kind)
        wide = x.double() if given is None else x.double() + given.double()
        gate = wide[:, 0::2]
        gated = functional.silu(gate) if kind == _GATED_SILU else functional.gelu(gate, approximate="tanh")
        exact = gated * wide[:, 1::2]
        rounding = exact.abs() * torch.finfo(dtype).eps / 2 + 4e-7 * (1 + exact.abs())
        error = float(((out.cpu().double() - exact).abs() / rounding).max())
        expect(
            error <= _ROUNDINGS,
            f"gated_activation loses precision in {dtype}",
            found=f"a result {error:.3g} times as far from float64 as one rounding",
            expected=f"at most {_ROUNDINGS}",
            do="convert half-precision tensors to float32, compute, and round at the end",
        )
