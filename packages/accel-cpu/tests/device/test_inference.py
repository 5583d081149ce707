# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Modules of stock deepspeed.inference.v2 on the CPU's inference functions, beside float64."""

from typing import Any

import pytest
import torch
from torch.nn import functional

TOKENS, CHANNELS, WIDER, EPSILON = 5, 32, 64, 1e-5
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-2}


@pytest.fixture(autouse=True)
def on_cpu(cpu: Any) -> Any:
    import deepspeed
    from deepspeed.accelerator import set_accelerator

    before = deepspeed.get_accelerator()
    set_accelerator(cpu)
    yield
    set_accelerator(before)


def module(registry: str, name: str, config: Any) -> Any:
    from deepspeed.inference.v2.modules import ConfigBundle, interfaces

    return getattr(interfaces, registry).instantiate_config(ConfigBundle(name=name, config=config))


def norm(registry: str, name: str, kind: str, dtype: torch.dtype) -> Any:
    from deepspeed.inference.v2.inference_utils import NormTypeEnum
    from deepspeed.inference.v2.modules.configs import DSNormConfig

    types = {"residual_dtype": dtype, "input_dtype": dtype, "output_dtype": dtype}
    config = DSNormConfig(type=NormTypeEnum[kind], channels=CHANNELS, max_tokens=TOKENS, eps=EPSILON, **types)
    return module(registry, name, config)


def numbers(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def assert_close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    assert found.device.type == "cpu"
    assert torch.allclose(found.double(), wanted, atol=TOLERANCE[found.dtype], rtol=TOLERANCE[found.dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kind", ["LayerNorm", "RMSNorm"])
def test_norm_before_a_layer_adds_the_residual_first(kind: str, dtype: torch.dtype) -> None:
    name = {"LayerNorm": "cuda_pre_ln", "RMSNorm": "cuda_pre_rms"}[kind]
    residual, hidden = numbers(dtype, TOKENS, CHANNELS), numbers(dtype, 1, TOKENS, CHANNELS)[0]
    gamma, beta = numbers(dtype, CHANNELS), numbers(dtype, 1, CHANNELS)[0] if kind == "LayerNorm" else None
    total = residual.double() + hidden.double()
    found = norm("DSPreNormRegistry", name, kind, dtype)(residual, hidden, gamma, beta)
    assert_close(found[0], total)
    if beta is None:
        assert_close(found[1], functional.rms_norm(total, (CHANNELS,), gamma.double(), EPSILON))
    else:
        weights = gamma.double(), beta.double()
        assert_close(found[1], functional.layer_norm(total, (CHANNELS,), *weights, EPSILON))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_norm_after_a_layer(dtype: torch.dtype) -> None:
    residual, hidden = numbers(dtype, TOKENS, CHANNELS), numbers(dtype, 1, TOKENS, CHANNELS)[0]
    gamma, beta = numbers(dtype, CHANNELS), numbers(dtype, 1, CHANNELS)[0]
    total = residual.double() + hidden.double()
    wanted = functional.layer_norm(total, (CHANNELS,), gamma.double(), beta.double(), EPSILON)
    after = norm("DSPostNormRegistry", "cuda_post_ln", "LayerNorm", dtype)
    assert_close(after(residual, hidden, gamma, beta)[0], wanted)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("kind", ["GELU", "SILU", "IDENTITY", "SiGLU"])
def test_linear_layer_with_its_activation(kind: str, biased: bool) -> None:
    from deepspeed.inference.v2.inference_utils import ActivationType
    from deepspeed.inference.v2.modules.configs import DSLinearConfig

    dtype, gated = torch.bfloat16, kind == "SiGLU"  # DeepSpeed's linear module takes no float32
    config = DSLinearConfig(
        in_channels=CHANNELS, out_channels=WIDER, activation=ActivationType[kind], max_tokens=TOKENS,
        input_dtype=dtype, output_dtype=dtype,
    )  # fmt: skip
    x, weight = numbers(dtype, TOKENS, CHANNELS), numbers(dtype, WIDER * (1 + gated), CHANNELS) / 8
    bias = numbers(dtype, weight.shape[0]) if biased else None
    wide = functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
    wanted = {
        "GELU": lambda: functional.gelu(wide, approximate="tanh"),
        "SILU": lambda: functional.silu(wide),
        "IDENTITY": lambda: wide,
        "SiGLU": lambda: functional.silu(wide[:, 0::2]) * wide[:, 1::2],
    }[kind]()
    found = module("DSLinearRegistry", "blas_fp_linear", config)(x, weight, bias)
    assert_close(found, wanted)
