# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The definitions are torch's, where torch has the same function: a second opinion."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from accel_ops import reference
from accel_ops.optimizers.fused import AdamStep, adam_step, multi_tensor_lion

from .optimizers.step_cases import undo_adam

BETAS = (0.8, 0.95)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_steps_are_those_of_torch_optim(kind, weight_decay):
    param = torch.nn.Parameter(drawn(3, 5))
    rates: dict[str, Any] = {"lr": 0.05, "eps": 1e-3, "weight_decay": weight_decay}
    rates |= {} if kind is torch.optim.Adagrad else {"betas": BETAS}
    optimizer, ours = kind([param], **rates), [param.detach().clone()]
    ours += [torch.zeros_like(param) for _ in range(1 if kind is torch.optim.Adagrad else 2)]
    for step in (1, 2, 3):
        param.grad = drawn(3, 5)
        optimizer.step()
        before = ours
        if kind is torch.optim.Adagrad:
            ours = reference.adagrad(param.grad, *ours, **rates)
        else:
            given = {**rates, "step": step, "decoupled": kind is torch.optim.AdamW}
            ours = reference.adam(param.grad, *ours, **given)
            torch.testing.assert_close(undo_adam(param.grad, *ours, **given), before)
        torch.testing.assert_close(ours[0], param.detach())


def test_lion_and_lamb_are_the_papers():
    grad, param, momentum = drawn(4), drawn(4), drawn(4)
    stepped, kept = reference.lion(grad, param, momentum, lr=0.1, betas=BETAS, weight_decay=0.5)
    torch.testing.assert_close(stepped, param - 0.1 * ((0.8 * momentum + 0.2 * grad).sign() + 0.5 * param))
    torch.testing.assert_close(kept, 0.95 * momentum + 0.05 * grad)
    # Within bounds of one ratio, without decay: the step of Adam whose epsilon the correction divides, too.
    rates: dict[str, Any] = {"step": 3, "betas": BETAS, "eps": 0.0}
    *lamb, _ = reference.lamb(
        2 * grad, param, momentum, param**2, lr=0.1, scale=2.0, bounds=(1.0, 1.0), **rates
    )
    assert all(map(torch.allclose, lamb, reference.adam(grad, param, momentum, param**2, lr=0.1, **rates)))
    free = reference.lamb(grad, param, momentum, param**2, lr=0.1, bounds=(0.0, 1e9), **rates)
    torch.testing.assert_close(free[3], param.norm() / (lamb[1] / lamb[2].sqrt()).norm())


def test_norms_activations_and_attention_are_torchs():
    x, gamma, beta = drawn(2, 3, 8), drawn(8), drawn(8)
    torch.testing.assert_close(reference.rms_norm(x, gamma, 1e-3), functional.rms_norm(x, (8,), gamma, 1e-3))
    layer = functional.layer_norm(x, (8,), gamma, beta, 1e-3)
    torch.testing.assert_close(reference.layer_norm(x, gamma, beta, 1e-3), layer)
    for kind, function in {"relu": functional.relu, "silu": functional.silu, "identity": lambda x: x}.items():
        torch.testing.assert_close(reference.activation(x, kind), function(x))
    torch.testing.assert_close(reference.activation(x, "gelu"), functional.gelu(x, approximate="tanh"))
    model, rows = reference.Attention(groups=2, rotary=8, interleaved=True), drawn(2, 5, (4 + 2 * 2) * 8)
    q, k, v = rows.view(2, 5, 8, 8).transpose(1, 2).split([4, 2, 2], 1)
    angles = torch.arange(5).double()[:, None] * 10000.0 ** (-torch.arange(4).double() / 4)
    turns = torch.polar(torch.ones_like(angles), angles)
    q, k = (
        torch.view_as_real(torch.view_as_complex(t.reshape(*t.shape[:-1], 4, 2)) * turns).flatten(-2)
        for t in (q, k)
    )
    wanted = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.36, enable_gqa=True)
    found, keys, values = reference.Sequences().attend(rows, model, None)
    torch.testing.assert_close(found, wanted.transpose(1, 2).flatten(2))
    torch.testing.assert_close(keys, k)
    assert torch.equal(values, v)


@pytest.mark.parametrize(("mantissa", "dtype"), [(3, torch.float8_e4m3fn), (2, torch.float8_e5m2)], ids=str)
def test_codes_of_eight_bits_are_torchs(mantissa, dtype):
    wanted = torch.arange(256, dtype=torch.uint8).view(dtype).double()
    finite = wanted.isfinite()
    assert torch.equal(reference.float_numbers(8, mantissa)[finite], wanted[finite])


@pytest.mark.parametrize("decoupled", [0, 1])
def test_plain_steps_in_float64_are_the_definitions(decoupled):
    lists = [[drawn(*shape).abs() for shape in ((), (0,), (3, 5))] for _ in range(4)]
    wanted = [[tensor.clone() for tensor in column] for column in lists]
    adam = AdamStep(torch.ones(1), 0.05, *BETAS, 1e-8, 7, decoupled, 1 - decoupled, 0.1)
    adam_step(lists, adam)
    reference.step_lists(reference.adam, wanted, **adam.hyperparameters)
    multi_tensor_lion(0, torch.ones(1), lists[:3], 0.05, *BETAS, 1, 0.1)
    reference.step_lists(reference.lion, wanted[:3], lr=0.05, betas=BETAS, weight_decay=0.1, at_zero=-1.0)
    torch.testing.assert_close(lists, wanted, rtol=1e-12, atol=1e-12)
