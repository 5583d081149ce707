# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lion and LAMB in plain torch against the papers' formulas in float64, over random shapes and hyper-parameters."""

from __future__ import annotations

import random

import pytest
import torch

from accel_ops.fused_optimizers import lamb, multi_tensor_lion

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4)]


def close(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> bool:
    return bool(((got.double() - want).abs() / want.abs().clamp(min=1)).le(TOLERANCE[dtype]).all())


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_step_of_lion_agrees_with_float64(dtype: torch.dtype) -> None:
    draw = random.Random(str(dtype))
    for _ in range(100):
        lr, b1, b2 = 10 ** draw.uniform(-4, -1), draw.choice([0.0, 0.9]), draw.choice([0.95, 0.99])
        decay = draw.choice([0.0, 0.1])
        lists = [[drawn(shape, dtype) for shape in draw.choices(SHAPES, k=3)]]
        lists += [[drawn(tuple(g.shape), dtype) for g in lists[0]] for _ in range(2)]
        expected = []
        for g, p, m in zip(*([t.double() for t in tensors] for tensors in lists), strict=True):
            direction = torch.where(b1 * m + (1 - b1) * g > 0, 1.0, -1.0).double()
            expected.append((p * (1 - lr * decay) - lr * direction, b2 * m + (1 - b2) * g))
        multi_tensor_lion(2048, torch.zeros(1), lists, lr, b1, b2, 1, decay)
        for place, (p, m) in enumerate(expected):
            assert close(lists[1][place], p, dtype)
            assert close(lists[2][place], m, dtype)


def test_parameter_without_gradient_and_momentum_grows_as_by_deepspeed_s_cuda_kernel() -> None:
    """Whose flag of an overflow is not read, either."""
    param = torch.ones(3)
    multi_tensor_lion(
        2048, torch.ones(1), [[torch.zeros(3)], [param], [torch.zeros(3)]], 0.1, 0.9, 0.99, 1, 0.0
    )
    assert torch.equal(param, torch.full((3,), 1.1))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_step_of_lamb_agrees_with_float64(dtype: torch.dtype) -> None:
    draw = random.Random(str(dtype))
    for _ in range(100):
        lr, b1, b2 = 10 ** draw.uniform(-4, -2), draw.choice([0.0, 0.9]), draw.choice([0.95, 0.999])
        eps, scale, step = 1e-3, draw.choice([1.0, 8.0]), draw.randint(1, 100)
        mode, correct, decay = draw.randint(0, 1), draw.randint(0, 1), draw.choice([0.0, 0.1])
        shape = draw.choice(SHAPES)
        p, m, g = (drawn(shape, dtype) for _ in range(3))
        v, copy = (
            drawn(shape, dtype).abs() + 1,
            draw.choice([torch.empty(0), torch.zeros(shape, requires_grad=True)]),
        )
        gs, m64 = g.double() / scale, m.double()
        m64 = b1 * m64 + (1 - b1) * gs
        v64 = b2 * v.double() + (1 - b2) * gs * gs
        update = m64 / ((v64 + eps).sqrt() if mode == 0 else v64.sqrt() + eps) + decay * p.double()
        size = lr * ((1 - b2**step) ** 0.5 / (1 - b1**step) if correct else 1.0)
        ratio = (p.double().norm() / update.norm()).clamp(0.01, 10.0)
        p64 = p.double() - size * ratio * update
        got = lamb(p, copy, m, v, g, lr, b1, b2, 10.0, 0.01, eps, scale, step, mode, correct, decay)
        assert got.shape == ()
        assert abs(float(got) - float(ratio)) <= 20 * TOLERANCE[dtype] * float(ratio)
        assert close(p, p64, dtype)
        assert close(m, m64, dtype)
        assert close(v, v64, dtype)
        assert not copy.numel() or close(copy, p64, max(dtype, copy.dtype, key=TOLERANCE.__getitem__))


def test_lamb_does_not_scale_where_a_norm_vanishes() -> None:
    param, zeros = torch.zeros(3), torch.zeros(3)
    ratio = lamb(
        param, torch.empty(0), zeros.clone(), zeros.clone(), torch.ones(3),
        0.1, 0.0, 0.0, 10.0, 0.01, 1e-8, 1.0, 1, 1, 0, 0.0,
    )  # fmt: skip
    assert float(ratio) == 1.0
    assert torch.allclose(param, torch.full((3,), -0.1))
