# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op norms of large activations, whose squares float16 cannot hold, norms written over their input, and gates."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.inference_functions import activation, layer_norm, rms_norm

pytestmark = pytest.mark.tier("device")

_EPS = 1e-5
#: Roundings of the type that a result may be apart, in units in the last place: one at the end, and float32's.
_ROUNDINGS = 1.02
#: Of deepspeed.inference.v2.inference_utils.ActivationType.
_GATES = {3: "gelu", 5: "silu"}
_SHAPE = (3, 5, 48)
_GAMMA = torch.linspace(0.5, 2, _SHAPE[-1])
_DO = "compute norms in float32, from inputs that were read before the output is written"
_core = pytest.mark.needs("InferenceCoreBuilder")


def _half(accelerator: DeepSpeedAccelerator) -> list[torch.dtype]:
    return [kind for kind in (torch.float16, torch.bfloat16) if kind in accelerator.supported_dtypes()]


def _numbers(dtype: torch.dtype, seed: int, scale: float = 900.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return ((torch.rand(_SHAPE, generator=generator) - 0.4) * scale).to(dtype)


def _near(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    allowed = 3 * torch.finfo(found.dtype).eps * (1 + wanted.abs())
    return bool(((found.cpu().double() - wanted).abs() <= allowed).all())


@pytest.mark.needs("InferenceBuilder")
def test_large_activations_are_normed(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device
) -> None:
    """`rms_norm` and `pre_rms_norm` of half-precision numbers in the hundreds are as of float64."""
    holds = Holds()
    for dtype in _half(accelerator):
        x, r, gamma = _numbers(dtype, 1), _numbers(dtype, 2), _GAMMA.to(dtype)
        total = x.float().add(r.float()).to(dtype).double()
        norm = op.rms_norm(x.to(device), gamma.to(device), _EPS)
        normed, summed = op.pre_rms_norm(x.to(device), r.to(device), gamma.to(device), _EPS)
        holds[f"rms_norm of {dtype}"] = _near(norm, rms_norm(x.double(), gamma.double(), _EPS))
        holds[f"pre_rms_norm of {dtype}"] = _near(normed, rms_norm(total, gamma.double(), _EPS))
        holds[f"the sum of {dtype}"] = _near(summed, total)
    holds.expect("transformer_inference", _DO)


#: Norm -> inputs that it adds up, its call with output, inputs, weight and bias, and what the definition gives.
_NORMS: dict[str, tuple[int, Any, Any]] = {
    "post_layer_norm": (2, lambda op, out, *given: op.post_layer_norm(out, *given, _EPS), layer_norm),
    "layer_norm": (1, lambda op, out, *given: op.layer_norm(out, *given, _EPS), layer_norm),
    "rms_norm": (1, lambda op, out, x, g, b: op.rms_norm(out, x, g, _EPS), lambda x, g, b, e: rms_norm(x, g, e)),
}  # fmt: skip
#: The same of norms that give the sum too: their call with sum, norm, residual, other input, weight and bias.
_WITH_SUMS: dict[str, tuple[Any, Any]] = {
    "pre_layer_norm": (lambda op, *given: op.pre_layer_norm(*given, _EPS), layer_norm),
    "rms_pre_norm": (
        lambda op, out, normed, residual, other, g, b: op.rms_pre_norm(normed, out, other, residual, g, _EPS),
        lambda x, g, b, e: rms_norm(x, g, e),
    ),
}


@_core
def test_norms_may_be_written_over_their_inputs(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device
) -> None:
    """Norms of large half-precision numbers are right, in new memory and over each of the inputs."""
    holds = Holds()
    for dtype, (name, (count, norm, reference)) in itertools.product(_half(accelerator), _NORMS.items()):
        inputs = [_numbers(dtype, 3), _numbers(dtype, 4)][:count]
        weights = [_GAMMA.to(dtype), _GAMMA.flip(0).to(dtype)]
        total = sum(each.double() for each in inputs)
        wanted = reference(total, *(weight.double() for weight in weights), _EPS)
        for where in ("new memory", *range(count)):
            given = [each.to(device, copy=True) for each in inputs]
            out = given[where] if isinstance(where, int) else torch.full_like(given[0], torch.nan)
            norm(op, out, *given, *(weight.to(device) for weight in weights))
            holds[f"{name} of {dtype} into {where}"] = _near(out, wanted)
    holds.expect("inference_core_ops", _DO)


@_core
def test_large_means_are_taken_off(op: Any, device: torch.device) -> None:
    """`layer_norm` of float32 numbers with a mean far above their deviation is as of float64."""
    holds, beta = Holds(), _GAMMA.flip(0)
    for mean in (3e2, -3e3):
        x = _numbers(torch.float32, 5, 2.0) + mean
        out = torch.empty(_SHAPE, device=device)
        op.layer_norm(out, x.to(device), _GAMMA.to(device), beta.to(device), _EPS)
        wanted = layer_norm(x.double(), _GAMMA.double(), beta.double(), _EPS)
        # The mean itself is rounded to float32.
        holds.near(f"a mean of {mean:g}", out, wanted, 4 * abs(mean) * torch.finfo(torch.float32).eps + 1e-5)
    holds.expect("layer_norm", "take the mean off before squaring: E[x^2] - E[x]^2 cancels")


@_core
def test_residuals_may_be_written_over(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device
) -> None:
    """The sum that `pre_layer_norm` and `rms_pre_norm` return beside its norm may take the place of the residual."""
    holds = Holds()
    for dtype, (name, (norm, reference)) in itertools.product(_half(accelerator), _WITH_SUMS.items()):
        x, y, weights = _numbers(dtype, 3), _numbers(dtype, 4), [_GAMMA.to(dtype), _GAMMA.flip(0).to(dtype)]
        total = x.double() + y.double()
        wanted = reference(total, *(weight.double() for weight in weights), _EPS)
        for where in ("new memory", "the residual"):
            residual, other = x.to(device, copy=True), y.to(device, copy=True)
            out = residual if where == "the residual" else torch.full_like(residual, torch.nan)
            normed = torch.full_like(residual, torch.nan)
            norm(op, out, normed, residual, other, *(weight.to(device) for weight in weights))
            holds[f"{name} of {dtype} into {where}"] = _near(out, total) and _near(normed, wanted)
    holds.expect("inference_core_ops", _DO)


@_core
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_activations_round_once(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, dtype: torch.dtype
) -> None:
    """A gate times a value of half precision is computed in float32 at least, with a bias and without."""
    if dtype not in accelerator.supported_dtypes():
        return
    generator, holds = torch.Generator().manual_seed(43), Holds()
    x, bias = ((torch.rand(shape, generator=generator) * 4 - 2).to(dtype) for shape in ((64, 48), (48,)))
    for kind, given in itertools.product(_GATES, (bias, None)):
        out = torch.full((64, 24), torch.nan, dtype=dtype, device=device)
        op.gated_activation(out, x.to(device), None if given is None else given.to(device), kind)
        wide = x.double() if given is None else x.double() + given.double()
        exact = activation(wide[:, 0::2], _GATES[kind]) * wide[:, 1::2]
        rounding = exact.abs() * torch.finfo(dtype).eps / 2 + 4e-7 * (1 + exact.abs())
        holds.near(
            f"{_GATES[kind]}, bias {given is not None}: one rounding", out, exact, _ROUNDINGS * rounding
        )
    do = "convert half-precision tensors to float32, compute, and round at the end"
    holds.expect(f"gated_activation in {dtype}", do)
