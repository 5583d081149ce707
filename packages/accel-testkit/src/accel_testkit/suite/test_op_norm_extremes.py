# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op norms of large activations, whose squares float16 cannot hold, norms written over their input, and gates."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect
from accel_testkit.suite.holds import Holds
from accel_testkit.suite.reference_inference import layer_norm, rms_norm

pytestmark = pytest.mark.tier("device")

_EPS = 1e-5
#: Roundings of the type that a result may be apart, in units in the last place: one at the end, and float32's.
_ROUNDINGS = 1.02
#: deepspeed.inference.v2.inference_utils.ActivationType.GATED_GELU.
_GATED_GELU, _GATED_SILU = 3, 5
_SHAPE = (3, 5, 48)
_DO = "compute norms in float32, from inputs that were read before the output is written"


def _half(accelerator: DeepSpeedAccelerator) -> list[torch.dtype]:
    return [kind for kind in (torch.float16, torch.bfloat16) if kind in accelerator.supported_dtypes()]


def _numbers(dtype: torch.dtype, seed: int, scale: float = 900.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return ((torch.rand(_SHAPE, generator=generator) - 0.4) * scale).to(dtype)


def _near(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    allowed = 3 * torch.finfo(found.dtype).eps * (1 + wanted.abs())
    return bool(((found.cpu().double() - wanted).abs() <= allowed).all())


@pytest.mark.needs("InferenceBuilder")
def test_large_activations_are_normed(accelerator: DeepSpeedAccelerator) -> None:
    """`rms_norm` and `pre_rms_norm` of half-precision numbers in the hundreds are as of float64."""
    op, device, holds = (
        accelerator.create_op_builder("InferenceBuilder").load(),
        accelerator.device(),
        Holds(),
    )
    for dtype in _half(accelerator):
        x, r = _numbers(dtype, 1), _numbers(dtype, 2)
        gamma = torch.linspace(0.5, 2, _SHAPE[-1]).to(dtype)
        total = x.float().add(r.float()).to(dtype).double()
        norm, (normed, summed) = (
            op.rms_norm(x.to(device), gamma.to(device), _EPS),
            op.pre_rms_norm(x.to(device), r.to(device), gamma.to(device), _EPS),
        )
        holds[f"rms_norm of {dtype}"] = _near(norm, rms_norm(x.double(), gamma.double(), _EPS))
        holds[f"pre_rms_norm of {dtype}"] = _near(normed, rms_norm(total, gamma.double(), _EPS))
        holds[f"the sum of {dtype}"] = _near(summed, total)
    holds.expect("transformer_inference", _DO)


@pytest.mark.needs("InferenceCoreBuilder")
def test_norms_may_be_written_over_their_inputs(accelerator: DeepSpeedAccelerator) -> None:
    """Norms of large half-precision numbers are right, in new memory and over each of the inputs."""
    op, device, holds = (
        accelerator.create_op_builder("InferenceCoreBuilder").load(),
        accelerator.device(),
        Holds(),
    )
    for dtype in _half(accelerator):
        x, y = _numbers(dtype, 3), _numbers(dtype, 4)
        gamma = torch.linspace(0.5, 2, _SHAPE[-1]).to(dtype)
        beta = gamma.flip(0)
        g, b = gamma.to(device), beta.to(device)
        wide, scale, shift = x.double(), gamma.double(), beta.double()
        total = wide + y.double()
        for where in ("new memory", "x", "y"):
            first, second = x.to(device, copy=True), y.to(device, copy=True)
            out = {"new memory": torch.full_like(first, torch.nan), "x": first, "y": second}[where]
            op.post_layer_norm(out, first, second, g, b, _EPS)
            holds[f"post_layer_norm of {dtype} into {where}"] = _near(
                out, layer_norm(total, scale, shift, _EPS)
            )
            if where == "y":
                continue
            first = x.to(device, copy=True)
            out = torch.full_like(first, torch.nan) if where == "new memory" else first
            op.layer_norm(out, first, g, b, _EPS)
            holds[f"layer_norm of {dtype} into {where}"] = _near(out, layer_norm(wide, scale, shift, _EPS))
            first = x.to(device, copy=True)
            out = torch.full_like(first, torch.nan) if where == "new memory" else first
            op.rms_norm(out, first, g, _EPS)
            holds[f"rms_norm of {dtype} into {where}"] = _near(out, rms_norm(wide, scale, _EPS))
    holds.expect("inference_core_ops", _DO)


@pytest.mark.needs("InferenceCoreBuilder")
def test_large_means_are_taken_off(accelerator: DeepSpeedAccelerator) -> None:
    """`layer_norm` of float32 numbers with a mean far above their deviation is as of float64."""
    op, device, holds = (
        accelerator.create_op_builder("InferenceCoreBuilder").load(),
        accelerator.device(),
        Holds(),
    )
    gamma = torch.linspace(0.5, 2, _SHAPE[-1])
    beta = gamma.flip(0)
    for mean in (3e2, -3e3):
        x = _numbers(torch.float32, 5, 2.0) + mean
        out = torch.empty(_SHAPE, device=device)
        op.layer_norm(out, x.to(device), gamma.to(device), beta.to(device), _EPS)
        wanted = layer_norm(x.double(), gamma.double(), beta.double(), _EPS)
        apart = float((out.cpu().double() - wanted).abs().max())
        # The mean itself is rounded to float32.
        holds[f"a mean of {mean:g}, {apart:.2g} apart"] = (
            apart <= 4 * abs(mean) * torch.finfo(torch.float32).eps + 1e-5
        )
    holds.expect("layer_norm", "take the mean off before squaring: E[x^2] - E[x]^2 cancels")


@pytest.mark.needs("InferenceCoreBuilder")
def test_residuals_may_be_written_over(accelerator: DeepSpeedAccelerator) -> None:
    """The sum that `pre_layer_norm` and `rms_pre_norm` return beside its norm may take the place of the residual."""
    op, holds = accelerator.create_op_builder("InferenceCoreBuilder").load(), Holds()
    device, gamma = accelerator.device(), torch.linspace(0.5, 2, _SHAPE[-1])
    for dtype in _half(accelerator):
        x, y, scale = _numbers(dtype, 3), _numbers(dtype, 4), gamma.to(dtype)
        total, shift = x.double() + y.double(), scale.flip(0)
        wanted = {
            "pre_layer_norm": layer_norm(total, scale.double(), shift.double(), _EPS),
            "rms_pre_norm": rms_norm(total, scale.double(), _EPS),
        }
        for name, norm in wanted.items():
            weights = [w.to(device) for w in ((scale, shift) if name == "pre_layer_norm" else (scale,))]
            for where in ("new memory", "the residual"):
                residual, other = x.to(device, copy=True), y.to(device, copy=True)
                out = residual if where == "the residual" else torch.full_like(residual, torch.nan)
                normed = torch.full_like(residual, torch.nan)
                if name == "pre_layer_norm":
                    op.pre_layer_norm(out, normed, residual, other, *weights, _EPS)
                else:  # its arguments are in another order
                    op.rms_pre_norm(normed, out, other, residual, *weights, _EPS)
                holds[f"{name} of {dtype} into {where}"] = _near(out, total) and _near(normed, norm)
    holds.expect("inference_core_ops", _DO)


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
