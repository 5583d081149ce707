# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Layers, autograd, autocast, optimizers, and the transformations on top of them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from accel_sim.checks import Checks, Device, expect, same

CHECKS = Checks()


def _alike(d: Device, module: nn.Module, given: torch.Tensor) -> None:
    """Check that results and gradients are bitwise those of the CPU."""
    there = copy.deepcopy(module).to(d.type)
    host, here = module(given), there(given.to(d.type))
    same(here, host)
    host.sum().backward()
    here.sum().backward()
    for mine, theirs in zip(module.parameters(), there.parameters(), strict=True):
        if mine.grad is not None and theirs.grad is not None:
            same(theirs.grad, mine.grad)


@CHECKS
def autograd(d: Device) -> None:
    leaf = torch.ones(3, device=d.type, requires_grad=True)
    loss: Any = (leaf * leaf).sum()
    loss.backward()
    assert leaf.grad is not None
    same(leaf.grad, [2.0] * 3)


@CHECKS
def convolutions(d: Device) -> None:
    torch.manual_seed(0)
    _alike(d, nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
           torch.randn(2, 3, 8, 8))  # fmt: skip
    _alike(d, nn.ConvTranspose1d(2, 3, 3), torch.randn(1, 2, 5))


@CHECKS
def embeddings_and_norms(d: Device) -> None:
    _alike(d, nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.GELU()), torch.tensor([1, 2]))
    _alike(d, nn.GroupNorm(2, 4), torch.randn(2, 4, 3))


@CHECKS
def attention(d: Device) -> None:
    attend: Any = nn.functional.scaled_dot_product_attention
    host = [torch.randn(1, 2, 8, 4, requires_grad=True) for _ in range(3)]
    here = [tensor.detach().to(d.type).requires_grad_() for tensor in host]
    first, second = attend(*host, is_causal=True), attend(*here, is_causal=True)
    same(second, first)
    for result in (first, second):
        result.sum().backward()
    for mine, theirs in zip(host, here, strict=True):
        same(theirs.grad, mine.grad)  # type: ignore[arg-type]
    mask = torch.ones(8, 8, dtype=torch.bool).tril()
    same(attend(*here, attn_mask=mask.to(d.type)), attend(*host, attn_mask=mask))


@CHECKS
def recurrent_cells(d: Device) -> None:
    # The CPU has a kernel of its own for these: equal up to rounding.
    for kind in (nn.LSTM, nn.GRU):
        module = kind(3, 4)
        there, given = copy.deepcopy(module).to(d.type), torch.randn(5, 1, 3)
        torch.testing.assert_close(there(given.to(d.type))[0].cpu(), module(given)[0])


@CHECKS
def autocast(d: Device) -> None:
    with torch.autocast(d.type, dtype=torch.bfloat16):
        tensor = torch.ones(2, 2, device=d.type)
        expect((tensor @ tensor).dtype == torch.bfloat16)
        expect(nn.functional.linear(tensor, tensor).dtype == torch.bfloat16)
        expect((tensor @ tensor).softmax(0).dtype == torch.float32)


@CHECKS
def gradient_scaler(d: Device) -> None:
    module = nn.Linear(2, 2).to(d.type)
    optimizer, scaler = torch.optim.SGD(module.parameters(), 0.1), torch.amp.GradScaler(d.type)
    scaler.scale(module(torch.ones(1, 2, device=d.type)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def _adamw(d: Device, **options: Any) -> None:
    torch.manual_seed(0)
    host = nn.Linear(4, 4)
    here = copy.deepcopy(host).to(d.type)
    optimizers = (torch.optim.AdamW(host.parameters(), foreach=False),
                  torch.optim.AdamW(here.parameters(), **options))  # fmt: skip
    for _ in range(3):
        for module, optimizer, place in zip((host, here), optimizers, ("cpu", d.type), strict=True):
            module(torch.ones(1, 4, device=place)).pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(here.weight.cpu(), host.weight, rtol=1e-6, atol=0)


@CHECKS
def adamw(d: Device) -> None:
    _adamw(d)


@CHECKS
def adamw_foreach(d: Device) -> None:
    _adamw(d, foreach=True)


@CHECKS
def adamw_fused(d: Device) -> None:
    _adamw(d, fused=True)


@CHECKS
def gradients_are_clipped(d: Device) -> None:
    module = nn.Linear(2, 2).to(d.type)
    module(torch.ones(1, 2, device=d.type)).sum().backward()
    norm = nn.utils.clip_grad_norm_(module.parameters(), 0.1)
    expect(norm.device == d.first)


@CHECKS
def function_transforms(d: Device) -> None:
    same(torch.func.vmap(lambda x: x * 2)(torch.ones(3, device=d.type)), [2.0] * 3)
    same(torch.func.grad(lambda x: (x**2).sum())(torch.ones(2, device=d.type)), [2.0] * 2)


@CHECKS
def forward_mode(d: Device) -> None:
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        make: Any = forward_ad.make_dual
        unpack: Any = forward_ad.unpack_dual
        dual = make(torch.ones(2, device=d.type), torch.ones(2, device=d.type))
        same(unpack(dual * dual).tangent, [2.0] * 2)


@CHECKS
def activation_checkpoints(d: Device) -> None:
    from torch.utils.checkpoint import checkpoint

    for reentrant in (False, True):
        leaf = torch.ones(64, device=d.type, requires_grad=True)
        result = checkpoint(lambda x: nn.functional.dropout(x * 2), leaf, use_reentrant=reentrant)
        result.sum().backward()
        assert leaf.grad is not None
        same(leaf.grad * 1.0, result.detach())


@CHECKS
def compiles(d: Device) -> None:
    function = torch.compile(lambda x: (x * 2).relu().sum(), backend="aot_eager")
    same(function(torch.ones(3, device=d.type)), 6.0)
    try:
        torch.compile(lambda x: x * 2, backend="inductor")(torch.ones(3, device=d.type))
    except torch._dynamo.exc.BackendCompilerFailed as error:
        expect("ACC-704" in str(error) and "'eager' or 'aot_eager'" in str(error), str(error))
    else:
        raise AssertionError("inductor compiles for a device without a code generator")


@CHECKS
def linear_algebra(d: Device) -> None:
    host = torch.randn(3, 3)
    here = host.to(d.type)
    calls: tuple[Any, ...] = (
        torch.linalg.inv,
        torch.linalg.eigvals,
        torch.fft.fft,
        torch.unique,
        torch.nonzero,
    )
    for call in calls:
        same(call(here), call(host))
    same(here.sort().indices, host.sort().indices)
    same(torch.einsum("ij,jk->ik", here, here), torch.einsum("ij,jk->ik", host, host))


@CHECKS
def operators_on_lists(d: Device) -> None:
    tensors = [torch.ones(2, device=d.type) for _ in range(3)]
    torch._foreach_mul_(tensors, 2)
    same(tensors[2], [2.0, 2.0])
    expect(torch._foreach_norm(tensors)[0].device == d.first)


@CHECKS
def packed_sequences(d: Device) -> None:
    packed = nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 1, device=d.type), torch.tensor([3, 2]))
    expect(packed.data.device == d.first)
    expect(packed.batch_sizes.device.type == "cpu", "the sizes of a packed sequence belong to the host")


@CHECKS
def accelerator_module(d: Device) -> None:
    current = torch.accelerator.current_accelerator()
    expect(current is not None and current.type == d.type)
    expect(torch.accelerator.device_count() == d.module.device_count())
    expect(torch.accelerator.is_available())
    torch.accelerator.empty_cache()
