# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers, autocast, optimizers, checkpoints, and compiled functions."""

import copy

import pytest
import torch
from torch import nn

from .conftest import Device, same


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
        same(leaf.grad * 1.0, result.detach())


def test_compiles(device: Device) -> None:
    function = torch.compile(lambda x: (x * 2).relu().sum(), backend="aot_eager")
    same(function(torch.ones(3, device=device.type)), 6.0)
    with pytest.raises(
        torch._dynamo.exc.BackendCompilerFailed, match=r"(?s)not simulated.*aot_eager.*ACC-704"
    ):
        torch.compile(lambda x: x * 2, backend="inductor")(torch.ones(3, device=device.type))
