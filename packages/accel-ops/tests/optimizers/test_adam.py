# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam in plain torch against the textbook formula in float64, over random shapes, types and hyper-parameters."""

from __future__ import annotations

import random

import pytest
import torch

from accel_ops.fused_optimizers import multi_tensor_adam

#: Largest error in units of the type's precision, relative to 1.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}


def reference(
    g: torch.Tensor, p: torch.Tensor, m: torch.Tensor, v: torch.Tensor, h: dict[str, float]
) -> tuple[torch.Tensor, ...]:
    """One step of Adam as the papers write it."""
    g, p, m, v = (tensor.double() for tensor in (g, p, m, v))
    if not h["adamw"]:
        g = g + h["decay"] * p
    m = h["b1"] * m + (1 - h["b1"]) * g
    v = h["b2"] * v + (1 - h["b2"]) * g * g
    c1 = 1 - h["b1"] ** h["step"] if h["correct"] else 1
    c2 = 1 - h["b2"] ** h["step"] if h["correct"] else 1
    update = (m / c1) / ((v / c2).sqrt() + h["eps"])
    if h["adamw"]:
        update = update + h["decay"] * p
    return p - h["lr"] * update, m, v


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_step_agrees_with_float64(dtype: torch.dtype) -> None:
    draw = random.Random(str(dtype))
    for _ in range(150):
        shapes = [draw.choice([(), (1,), (0,), (7,), (3, 5), (2, 3, 4)]) for _ in range(draw.randint(1, 4))]
        h = {
            "lr": 10 ** draw.uniform(-4, -1), "b1": draw.choice([0.0, 0.9]), "b2": draw.choice([0.95, 0.999]),
            "eps": 1e-8 if dtype.itemsize >= 4 else 1e-5, "step": draw.randint(1, 1000),
            "adamw": draw.randint(0, 1), "correct": draw.randint(0, 1), "decay": draw.choice([0.0, 0.1]),
        }  # fmt: skip
        lists = [[torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes] for _ in range(4)]
        lists[3] = [tensor.abs() for tensor in lists[3]]
        expected = [reference(*tensors, h) for tensors in zip(*lists, strict=True)]
        multi_tensor_adam(
            2048, torch.zeros(1), lists, h["lr"], h["b1"], h["b2"], h["eps"], int(h["step"]),
            int(h["adamw"]), int(h["correct"]), h["decay"],
        )  # fmt: skip
        for place, wanted in enumerate(expected):
            for got, want in zip((lists[1][place], lists[2][place], lists[3][place]), wanted, strict=True):
                scale = want.abs().clamp(min=1)
                assert ((got.double() - want).abs() / scale).le(TOLERANCE[dtype]).all(), h


def test_parameters_that_need_gradients_are_updated_in_place() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    lists = [[torch.ones(3)], [parameter], [torch.zeros(3)], [torch.zeros(3)]]
    before = parameter.data_ptr()
    multi_tensor_adam(0, torch.zeros(1), lists, 0.1, 0.9, 0.999, 1e-8, 1, 1, 1, 0.0)
    assert torch.allclose(parameter, torch.full((3,), 0.9))
    assert parameter.data_ptr() == before
    assert torch.equal(lists[0][0], torch.ones(3))
