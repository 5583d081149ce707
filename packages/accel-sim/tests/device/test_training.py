# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Layers, autograd, autocast, optimizers, and the transformations on top of them."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from .conftest import Device, same


def _alike(device: Device, module: nn.Module, given: torch.Tensor) -> None:
    """Check that results and gradients are bitwise those of the CPU."""
    there = copy.deepcopy(module).to(device.type)
    host, here = module(given), there(given.to(device.type))
    same(here, host)
    host.sum().backward()
    here.sum().backward()
    for mine, theirs in zip(module.parameters(), there.parameters(), strict=True):
        if mine.grad is not None and theirs.grad is not None:
            same(theirs.grad, mine.grad)


def test_convolutions(device: Device) -> None:
    torch.manual_seed(0)
    _alike(device, nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
           torch.randn(2, 3, 8, 8))  # fmt: skip
    _alike(device, nn.ConvTranspose1d(2, 3, 3), torch.randn(1, 2, 5))


def test_attention(device: Device) -> None:
    attend: Any = nn.functional.scaled_dot_product_attention
    host = [torch.randn(1, 2, 8, 4, requires_grad=True) for _ in range(3)]
    here = [tensor.detach().to(device.type).requires_grad_() for tensor in host]
    first, second = attend(*host, is_causal=True), attend(*here, is_causal=True)
    same(second, first)
    for result in (first, second):
        result.sum().backward()
    for mine, theirs in zip(host, here, strict=True):
        same(theirs.grad, mine.grad)  # type: ignore[arg-type]
    mask = torch.ones(8, 8, dtype=torch.bool).tril()
    same(attend(*here, attn_mask=mask.to(device.type)), attend(*host, attn_mask=mask))


def test_recurrent_cells(device: Device) -> None:
    # The CPU has a kernel of its own for these: equal up to rounding.
    for kind in (nn.LSTM, nn.GRU):
        module = kind(3, 4)
        there, given = copy.deepcopy(module).to(device.type), torch.randn(5, 1, 3)
        torch.testing.assert_close(there(given.to(device.type))[0].cpu(), module(given)[0])


def test_autocast(device: Device) -> None:
    with torch.autocast(device.type, dtype=torch.bfloat16):
        tensor = torch.ones(2, 2, device=device.type)
        assert (tensor @ tensor).dtype == torch.bfloat16
        assert nn.functional.linear(tensor, tensor).dtype == torch.bfloat16
        assert (tensor @ tensor).softmax(0).dtype == torch.float32


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=str)
def test_adamw(device: Device, options: dict[str, bool]) -> None:
    torch.manual_seed(0)
    host = nn.Linear(4, 4)
    here = copy.deepcopy(host).to(device.type)
    optimizers = (torch.optim.AdamW(host.parameters(), foreach=False),
                  torch.optim.AdamW(here.parameters(), **options))  # fmt: skip
    for _ in range(3):
        for module, optimizer, place in zip((host, here), optimizers, ("cpu", device.type), strict=True):
            module(torch.ones(1, 4, device=place)).pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(here.weight.cpu(), host.weight, rtol=1e-6, atol=0)


def test_activation_checkpoints(device: Device) -> None:
    from torch.utils.checkpoint import checkpoint

    for reentrant in (False, True):
        leaf = torch.ones(64, device=device.type, requires_grad=True)
        result = checkpoint(lambda x: nn.functional.dropout(x * 2), leaf, use_reentrant=reentrant)
        result.sum().backward()
        assert leaf.grad is not None
        same(leaf.grad * 1.0, result.detach())


def test_compiles(device: Device) -> None:
    function = torch.compile(lambda x: (x * 2).relu().sum(), backend="aot_eager")
    same(function(torch.ones(3, device=device.type)), 6.0)
    with pytest.raises(
        torch._dynamo.exc.BackendCompilerFailed, match=r"(?s)not simulated.*aot_eager.*ACC-704"
    ):
        torch.compile(lambda x: x * 2, backend="inductor")(torch.ones(3, device=device.type))


def test_linear_algebra(device: Device) -> None:
    host = torch.randn(3, 3)
    here = host.to(device.type)
    for call in (torch.linalg.inv, torch.linalg.eigvals, torch.fft.fft, torch.unique, torch.nonzero):
        same(call(here), call(host))
    same(here.sort().indices, host.sort().indices)
    same(torch.einsum("ij,jk->ik", here, here), torch.einsum("ij,jk->ik", host, host))
