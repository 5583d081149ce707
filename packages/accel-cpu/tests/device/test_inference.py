# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Modules of stock deepspeed.inference.v2 on the CPU's inference functions, compared with float64."""

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


def numbers(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def assert_close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    assert found.device.type == "cpu"
    assert torch.allclose(found.double(), wanted, atol=TOLERANCE[found.dtype], rtol=TOLERANCE[found.dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", ["cuda_pre_ln", "cuda_pre_rms", "cuda_post_ln"])
def test_norm_adds_the_residual_first(name: str, dtype: torch.dtype) -> None:
    from deepspeed.inference.v2.inference_utils import NormTypeEnum
    from deepspeed.inference.v2.modules.configs import DSNormConfig

    before, kind = "pre" in name, NormTypeEnum.RMSNorm if "rms" in name else NormTypeEnum.LayerNorm
    types = {"residual_dtype": dtype, "input_dtype": dtype, "output_dtype": dtype}
    config = DSNormConfig(type=kind, channels=CHANNELS, max_tokens=TOKENS, eps=EPSILON, **types)
    residual, hidden = numbers(dtype, TOKENS, CHANNELS), numbers(dtype, 1, TOKENS, CHANNELS)[0]
    gamma, beta = numbers(dtype, CHANNELS), None if "rms" in name else numbers(dtype, 1, CHANNELS)[0]
    layer = module("DSPreNormRegistry" if before else "DSPostNormRegistry", name, config)
    total, shape = residual.double() + hidden.double(), (CHANNELS,)
    found = layer(residual, hidden, gamma, beta)
    if beta is None:
        normed = functional.rms_norm(total, shape, gamma.double(), EPSILON)
    else:
        normed = functional.layer_norm(total, shape, gamma.double(), beta.double(), EPSILON)
    for mine, wanted in zip(found, [total, normed] if before else [normed], strict=False):
        assert_close(mine, wanted)


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
