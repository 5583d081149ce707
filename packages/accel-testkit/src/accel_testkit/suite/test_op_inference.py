# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op inference: norms, products and activations of both inference ops, beside float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.inference_functions import (
    Attention,
    activation,
    layer_norm,
    rms_norm,
    rotated,
    typed,
)

pytestmark = pytest.mark.tier("device")

_TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-2, torch.bfloat16: 1.6e-1}
_SHAPES = [(2, 3, 16), (1, 1, 8), (5, 40)]
_EPSILONS = [1e-6, 0.5]
#: Values of deepspeed.inference.v2.inference_utils.ActivationType.
_KINDS = {0: "gelu", 1: "relu", 2: "silu", 6: "identity"}
_GATES = {3: "gelu", 4: "relu", 5: "silu"}
_SILU_GATE = 5
#: Beyond the blocks that a launch of many devices has in one dimension.
_MANY = (1 << 16) + 3
#: Values of deepspeed.utils.types.ActivationFuncType.
_MLP_KINDS = {1: "gelu", 2: "relu"}

Pairs = list[tuple[Any, torch.Tensor]]


class Numbers:
    """Random numbers in [-1, 1): on the host in float64, and the same on the device in the type under test."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.generator = torch.Generator().manual_seed(31)

    def __call__(self, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = torch.rand(shape, generator=self.generator, dtype=torch.float64) * 2 - 1
        ours = numbers.to(self.device, self.dtype)
        return ours.cpu().double(), ours

    def output(self, *shape: int) -> torch.Tensor:
        """Return a NaN-filled output tensor."""
        return torch.full(shape, torch.nan, device=self.device, dtype=self.dtype)


def _rms_norm(op: Any, new: Numbers) -> Pairs:
    pairs: Pairs = []
    for shape, eps in itertools.product(_SHAPES, _EPSILONS):
        (x, x_), (r, r_), (g, g_) = new(*shape), new(*shape), new(shape[-1])
        pairs.append((op.rms_norm(x_, g_, eps), rms_norm(x, g, eps)))
        pairs += zip(op.pre_rms_norm(x_, r_, g_, eps), (rms_norm(x + r, g, eps), x + r), strict=True)
        pairs += [(x_, x), (r_, r)]  # inputs stay
    return pairs


def _rms_qkv_gemm(op: Any, new: Numbers) -> Pairs:
    pairs: Pairs = []
    for outer, transposed, eps in itertools.product((24, 16), (True, False), _EPSILONS):
        (x, x_), (g, g_), (w, w_) = new(2, 3, 16), new(16), new(*((outer, 16) if transposed else (16, outer)))
        norm = rms_norm(x, g, eps)
        found = typed(op, "rms_qkv_gemm", new.dtype)(x_, w_, new.output(1), g_, eps, False, transposed)
        pairs += zip(found, (norm @ (w.t() if transposed else w), norm), strict=True)
    return pairs


def _linear_layer(op: Any, new: Numbers) -> Pairs:
    pairs: Pairs = []
    # Of a square one the shape does not say which way it is.
    for outer, transposed, biased in itertools.product((24, 16), (True, False), (True, False)):
        (x, x_), (b, b_), (w, w_) = (
            new(2, 3, 16), new(outer), new(*((outer, 16) if transposed else (16, outer)))
        )  # fmt: skip
        found = typed(op, "linear_layer", new.dtype)(x_, w_, b_, biased, False, 4, transposed, 10000.0)
        pairs.append((found, x @ (w.t() if transposed else w) + (b if biased else 0)))
    return pairs


def _mlp_gemm(op: Any, new: Numbers) -> Pairs:
    pairs: Pairs = []
    for kind, after, transposed, biased in itertools.product(_MLP_KINDS, *[(True, False)] * 3):
        (x, x_), (r, r_), (ib, ib_), (b, b_), (g, g_), (bt, bt_) = (
            new(2, 3, 16), new(2, 3, 16), new(16), new(24), new(16), new(16)
        )  # fmt: skip
        (w1, w1_), (w2, w2_) = new(16, 24), new(24, 16)
        if transposed:
            w1_, w2_ = w1_.t().contiguous(), w2_.t().contiguous()
        start = x + r + (ib if biased else 0) if after else x
        norm = layer_norm(start, g, bt, 1e-3)
        inner = biased or after  # models without any bias have none here either
        found = typed(op, "mlp_gemm", new.dtype)(
            x_, r_, ib_ if biased else None, w1_, w2_, b_ if inner else None, g_, bt_, 1e-3, True, after, new.output(1),
            new.output(1), False, kind, transposed,
        )  # fmt: skip
        wanted = activation(norm @ w1 + (b if inner else 0), _MLP_KINDS[kind]) @ w2
        pairs += zip(found, (wanted, norm), strict=True)
        pairs += [(x_, x), (r_, r)]  # inputs stay
    return pairs


def _apply_rotary_pos_emb(op: Any, new: Numbers) -> Pairs:
    pairs: Pairs = []
    for rotary, theta in itertools.product((8, 4), (1e4, 2.0)):
        (q, q_), (k, k_) = new(2, 4, 5, 8), new(2, 4, 5, 8)  # batch, heads, tokens, width
        found = op.apply_rotary_pos_emb(q_, k_, rotary, 3, 4, True, theta)
        model = Attention(rotary=rotary, theta=theta)
        pairs += [(ours, rotated(x, 3, model)) for ours, x in zip(found, (q, k), strict=True)]
        pairs += [(q_, q), (k_, k)]  # inputs stay
    return pairs


def _core_norms(op: Any, new: Numbers) -> Pairs:
    pairs: Pairs = []
    for shape, eps in itertools.product([(6, 16), (1, 40)], _EPSILONS):
        (x, x_), (r, r_), (g, g_), (b, b_) = new(*shape), new(*shape), new(shape[-1]), new(shape[-1])
        rms, layer = rms_norm(x + r, g, eps), layer_norm(x + r, g, b, eps)
        for name, given, wanted in (
            ("rms_norm", (x_, g_), [rms_norm(x, g, eps)]),
            ("rms_pre_norm", (x_, r_, g_), [rms, x + r]),
            ("layer_norm", (x_, g_, b_), [layer_norm(x, g, b, eps)]),
            ("pre_layer_norm", (r_, x_, g_, b_), [x + r, layer]),
            ("post_layer_norm", (x_, r_, g_, b_), [layer]),
        ):
            # New for each: a former result may be the right one.
            found = [new.output(*shape) for _ in wanted]
            getattr(op, name)(*found, *given, eps)
            pairs += zip(found, wanted, strict=True)
        pairs += [(x_.clone(), x), (r_.clone(), r)]
        op.rms_pre_norm(x_, r_, x_, r_, g_, eps)  # in place, as the engine calls it
        pairs += [(x_, rms), (r_, x + r)]
    return pairs


def _core_products(op: Any, new: Numbers) -> Pairs:
    op.create_handle()
    pairs: Pairs = []
    # Of a square one the shape does not say which way it is.
    for inner, outer in ((16, 24), (33, 7), (16, 16)):
        (x, x_), (w, w_), out = new(5, inner), new(outer, inner), new.output(5, outer)
        op.blas_linear(out, x_, w_)
        pairs.append((out, x @ w.t()))
    return pairs


def _core_activations(op: Any, new: Numbers) -> Pairs:
    pairs: Pairs = []
    for biased in (True, False):
        for kind, name in _KINDS.items():
            (x, x_), (b, b_) = new(5, 24), new(24)
            op.bias_activation(x_, b_ if biased else None, kind)
            pairs.append((x_, activation(x + (b if biased else 0), name)))
        for kind, name in _GATES.items():
            (x, x_), (b, b_), out = new(5, 24), new(24), new.output(5, 12)
            op.gated_activation(out, x_, b_ if biased else None, kind)
            wide = x + (b if biased else 0)
            pairs += [(out, activation(wide[:, 0::2], name) * wide[:, 1::2]), (x_, x)]
    return pairs


def _core_many_rows(op: Any, new: Numbers) -> Pairs:
    (x, x_), (g, g_), (b, b_), (w, w_) = new(_MANY, 8), new(8), new(8), new(4, 8)
    product, gated, *norms = (new.output(_MANY, width) for width in (4, 4, 8, 8))
    op.blas_linear(product, x_, w_)
    op.gated_activation(gated, x_, None, _SILU_GATE)
    op.rms_norm(norms[0], x_, g_, 1e-3)
    op.layer_norm(norms[1], x_, g_, b_, 1e-3)
    wanted = (x @ w.t(), activation(x[:, 0::2], _GATES[_SILU_GATE]) * x[:, 1::2], rms_norm(x, g, 1e-3))
    return list(zip((product, gated, *norms), (*wanted, layer_norm(x, g, b, 1e-3)), strict=True))


#: Functions by what they are: (class name of the builder, calls).
CASES: dict[str, tuple[str, Callable[[Any, Numbers], Pairs]]] = {
    "rms_norm, pre_rms_norm": ("InferenceBuilder", _rms_norm),
    "rms_qkv_gemm": ("InferenceBuilder", _rms_qkv_gemm),
    "linear_layer": ("InferenceBuilder", _linear_layer),
    "mlp_gemm": ("InferenceBuilder", _mlp_gemm),
    "apply_rotary_pos_emb": ("InferenceBuilder", _apply_rotary_pos_emb),
    "norms of the core": ("InferenceCoreBuilder", _core_norms),
    "products of the core": ("InferenceCoreBuilder", _core_products),
    "activations of the core": ("InferenceCoreBuilder", _core_activations),
    "many rows of the core": ("InferenceCoreBuilder", _core_many_rows),
}


@pytest.mark.parametrize("dtype", _TOLERANCE, ids=["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.needs(builder)) for name, (builder, _) in CASES.items()]
)
def test_functions_are_right(accelerator: DeepSpeedAccelerator, case: str, dtype: torch.dtype) -> None:
    """Each function gives what its definition gives in float64, for all its flags, and leaves its inputs alone."""
    if dtype not in accelerator.supported_dtypes():
        return
    name, calls = CASES[case]
    op = accelerator.create_op_builder(name).load()
    pairs = calls(op, Numbers(torch.device(accelerator.device()), dtype))
    accelerator.synchronize()
    holds = Holds()
    for number, (found, wanted) in enumerate(pairs):
        holds.near(
            f"tensor {number}, within {_TOLERANCE[dtype]:g} of float64", found, wanted, _TOLERANCE[dtype]
        )
        holds.equal(f"the type of tensor {number}", found.dtype, dtype)
    do = f"compare the op that {name} loads with the definition of the function"
    holds.expect(f"{case} of {name} in {dtype}", do)
