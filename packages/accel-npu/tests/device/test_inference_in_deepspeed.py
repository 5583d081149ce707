# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stock DeepSpeed's injected transformer layer on these functions, beside the same layer written out in float64."""

from typing import Any

import pytest
import torch
from torch.nn import functional

WIDTH, HEADS, TOKENS, LATER = 32, 4, 6, 3


@pytest.fixture(scope="module")
def deepspeed() -> Any:
    import deepspeed

    assert type(deepspeed.get_accelerator()).__name__ == "NPU_Accelerator"
    return deepspeed


def make(deepspeed: Any, **options: Any) -> Any:
    """A layer with random weights on the device; they are (in, out)."""
    from deepspeed.model_implementations.transformers.ds_transformer import (
        DeepSpeedTransformerInference as Layer,
    )
    from deepspeed.ops.transformer.inference.config import DeepSpeedInferenceConfig
    from deepspeed.ops.transformer.inference.ds_attention import DeepSpeedSelfAttention

    Layer.layer_id = DeepSpeedSelfAttention.num_layers = 0
    config = DeepSpeedInferenceConfig(
        hidden_size=WIDTH, heads=HEADS, num_hidden_layers=1, layer_norm_eps=1e-6, dtype=torch.float32,
        return_tuple=False, **options,
    )  # fmt: skip
    layer = Layer(config).npu()
    generator = torch.Generator().manual_seed(4)
    for parameter in layer.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return layer


def run(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """Outputs of a prompt and of single tokens after it."""
    parts = [x[:, :TOKENS], *(x[:, n : n + 1] for n in range(TOKENS, TOKENS + LATER))]
    outputs = [layer(part.npu(), input_mask=None, use_cache=False) for part in parts]
    return torch.cat([output.cpu() for output in outputs], dim=1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """(batch, tokens, heads, 8) with fewer heads of k and v; causal."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    found = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return found.transpose(1, 2).flatten(2)


def weights(layer: Any) -> dict[str, torch.Tensor]:
    return {
        name.rpartition(".")[2]: value.detach().cpu().double() for name, value in layer.named_parameters()
    }


@pytest.mark.parametrize("kind", ["GELU", "ReLU"])
def test_layer_with_layer_norms(deepspeed: Any, kind: str) -> None:
    from deepspeed.utils.types import ActivationFuncType

    layer = make(deepspeed, mlp_act_func_type=ActivationFuncType[kind], rotary_dim=-1)
    x = torch.randn(2, TOKENS + LATER, WIDTH)
    found, w, h = run(layer, x), weights(layer), x.double()
    norm = functional.layer_norm(h, (WIDTH,), w["norm_w"], w["norm_b"], 1e-6)
    q, k, v = (norm @ w["attn_qkvw"] + w["attn_qkvb"]).view(2, -1, 3, HEADS, WIDTH // HEADS).unbind(2)
    attended = attention(q, k, v) @ w["attn_ow"]
    middle = functional.layer_norm(h + attended + w["attn_ob"], (WIDTH,), w["attn_nw"], w["attn_nb"], 1e-6)
    inner = middle @ w["inter_w"] + w["inter_b"]
    inner = inner.relu() if kind == "ReLU" else functional.gelu(inner, approximate="tanh")
    wanted = inner @ w["output_w"] + w["output_b"] + h + attended + w["attn_ob"]
    assert torch.allclose(found.double(), wanted, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("groups", [HEADS, 2])
def test_layer_with_root_mean_square_norms_rotation_and_gates(deepspeed: Any, groups: int) -> None:
    from deepspeed.utils.types import ActivationFuncType, NormType

    layer = make(
        deepspeed, norm_type=NormType.RMSNorm, mlp_act_func_type=ActivationFuncType.GATED_SILU, rotary_dim=8,
        rotate_half=True, rotate_every_two=False, num_kv=groups,
    )  # fmt: skip
    # Models with such norms have no biases: DeepSpeed's layer would add that of the attention twice.
    layer.attention.attn_qkvb = layer.attention.attn_ob = layer.mlp.output_b = None
    x = torch.randn(2, TOKENS + LATER, WIDTH)
    found, w, h = run(layer, x), weights(layer), x.double()
    norm = functional.rms_norm(h, (WIDTH,), w["norm_w"], 1e-6)
    rows = (norm @ w["attn_qkvw"]).view(2, -1, HEADS + 2 * groups, 8)
    q, k, v = rows.split([HEADS, groups, groups], dim=2)
    total = h + attention(turned(q), turned(k), v) @ w["attn_ow"]
    up, gate = (functional.rms_norm(total, (WIDTH,), w["attn_nw"], 1e-6) @ w["inter_w"]).chunk(2, dim=-1)
    wanted = (functional.silu(gate) * up) @ w["output_w"] + total
    assert torch.allclose(found.double(), wanted, atol=1e-3, rtol=1e-4)


def turned(x: torch.Tensor) -> torch.Tensor:
    """Rotary embedding in halves, as Llama has it."""
    angle = torch.arange(x.shape[1])[:, None, None] * 10000.0 ** (-torch.arange(0, 8, 2) / 8)
    cos, sin = (torch.cat((t, t), -1).double() for t in (angle.cos(), angle.sin()))
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
