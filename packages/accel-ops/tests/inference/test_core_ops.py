# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The functions of inference_core_ops against the textbook in float64, with DeepSpeed's own argument orders."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from accel_core.errors import FunctionNotImplemented
from accel_ops.inference import CoreFunctions

#: Largest error in units of the type's precision, of numbers of about 1.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
TOKENS, CHANNELS, EPSILON = 5, 24, 1e-5
CORE = CoreFunctions()


def draw(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64).to(dtype)


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool(((found.double() - wanted).abs() <= TOLERANCE[found.dtype] * wanted.abs().clamp(min=1)).all())


def rms(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + EPSILON).sqrt() * gamma


def layer(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + EPSILON).sqrt() * gamma + beta


@pytest.fixture(params=TOLERANCE, ids=str)
def x(request: pytest.FixtureRequest) -> torch.Tensor:
    torch.manual_seed(3)
    return draw(TOKENS, CHANNELS, dtype=request.param)


@pytest.fixture
def other(x: torch.Tensor) -> Callable[..., torch.Tensor]:
    return lambda *shape: draw(*shape or x.shape, dtype=x.dtype)


def test_rms_norm_takes_its_input_as_output(x, other) -> None:  # type: ignore[no-untyped-def]
    gamma, wanted = other(CHANNELS), x.double()
    wanted = rms(wanted, gamma.double())
    CORE.rms_norm(x, x, gamma, EPSILON)
    assert close(x, wanted)


def test_rms_pre_norm_adds_first_and_keeps_the_sum(x, other) -> None:  # type: ignore[no-untyped-def]
    residual, gamma = other(), other(CHANNELS)
    total = (residual + x).double()
    normed = torch.empty_like(x)
    CORE.rms_pre_norm(normed, residual, x, residual, gamma, EPSILON)
    assert close(residual, total)
    assert close(normed, rms(total, gamma.double()))


def test_layer_norms(x, other) -> None:  # type: ignore[no-untyped-def]
    y, gamma, beta = other(), other(CHANNELS), other(CHANNELS)
    wide = [tensor.double() for tensor in (gamma, beta)]
    output, total = torch.empty_like(x), torch.empty_like(x)
    CORE.layer_norm(output, x, gamma, beta, EPSILON)
    assert close(output, layer(x.double(), *wide))
    CORE.post_layer_norm(output, x, y, gamma, beta, EPSILON)
    assert close(output, layer((x + y).double(), *wide))
    CORE.pre_layer_norm(total, output, x, y, gamma, beta, EPSILON)
    assert close(total, (x + y).double())
    assert close(output, layer((x + y).double(), *wide))


def gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


#: By DeepSpeed's numbers.
PLAIN = {0: gelu, 1: torch.relu, 2: lambda x: x / (1 + torch.exp(-x)), 6: lambda x: x}
GATED = {3: PLAIN[0], 4: PLAIN[1], 5: PLAIN[2]}


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("biased", [True, False])
def test_bias_activation_works_in_place(x, other, kind, biased) -> None:  # type: ignore[no-untyped-def]
    bias = other(CHANNELS) if biased else None
    wanted = PLAIN[kind](x.double() + (bias.double() if biased else 0))
    CORE.bias_activation(x, bias, kind)
    assert close(x, wanted)


@pytest.mark.parametrize("kind", GATED)
@pytest.mark.parametrize("biased", [True, False])
def test_gates_and_values_alternate(x, other, kind, biased) -> None:  # type: ignore[no-untyped-def]
    bias = other(CHANNELS) if biased else None
    wide = x.double() + (bias.double() if biased else 0)
    output = x.new_empty(TOKENS, CHANNELS // 2)
    CORE.gated_activation(output, x, bias, kind)
    assert close(output, GATED[kind](wide[:, 0::2]) * wide[:, 1::2])


def test_linear_folds_leading_dimensions(x, other) -> None:  # type: ignore[no-untyped-def]
    weights, output = other(7, CHANNELS), x.new_empty(TOKENS, 1, 7)
    CORE.create_handle()
    CORE.blas_linear(output, x, weights)
    wanted = x.double() @ weights.double().T
    assert close(output.squeeze(1) / CHANNELS**0.5, wanted / CHANNELS**0.5)


def test_a_function_that_is_missing_is_told_with_those_there_are() -> None:
    with pytest.raises(FunctionNotImplemented, match="cuda_wf6af16_linear") as caught:
        CORE.cuda_wf6af16_linear()
    assert isinstance(caught.value, AttributeError)
    assert "gated_activation, " in str(caught.value)
    assert not hasattr(CORE, "preprocess_weight")
