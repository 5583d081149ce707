# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Sparse and quantized tensors, dtypes that the CPU's kernels lack, DLPack, and attention without data."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

from accel_sim.checks import Checks, Device, expect, same

CHECKS = Checks()


def _both(d: Device, run: Any) -> tuple[Any, Any]:
    torch.manual_seed(3)
    here = run(d.type)
    torch.manual_seed(3)
    return here, run("cpu")


@CHECKS
def sparse_tensors(d: Device) -> None:
    def run(place: str) -> torch.Tensor:
        made = torch.sparse_coo_tensor(
            torch.tensor([[0, 2, 2]]), torch.tensor([1.0, 2.0, 3.0]), (4,), device=place
        )
        expect(made.device.type == place)
        doubled = made + made
        expect(doubled.coalesce().is_coalesced())
        return doubled.to_dense() + made.cpu().to(place).to_dense()

    same(*_both(d, run))


@CHECKS
def sparse_gradients(d: Device) -> None:
    def run(place: str) -> torch.Tensor:
        table: Any = nn.Embedding.from_pretrained(torch.ones(6, 2), freeze=False, sparse=True).to(place)
        optimizers: tuple[Any, ...] = (
            torch.optim.SparseAdam(table.parameters(), lr=0.1),
            torch.optim.SGD(table.parameters(), 0.1),
        )
        for optimizer in optimizers:
            for _ in range(2):  # the second one is added to the first
                table(torch.tensor([1, 2, 2], device=place)).sum().backward()
            grad: Any = table.weight.grad
            expect(grad.is_sparse)
            optimizer.step()
            optimizer.zero_grad()
        found: torch.Tensor = table.weight.detach()
        return found

    same(*_both(d, run))


@CHECKS
def nested_tensors(d: Device) -> None:
    parts = [torch.ones(2, 3), torch.ones(3, 3)]
    torch.nested.nested_tensor(parts, device=d.type).to_padded_tensor(0.0)


@CHECKS
def quantized_tensors(d: Device) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        host = torch.quantize_per_tensor(torch.tensor([-1.0, 0.5, 2.0]), 0.1, 2, torch.qint8)
        here: Any = host.to(d.type)
        expect(here.device == d.first)
        expect(here.is_quantized and here.q_scale() == 0.1)
        same(here.int_repr(), host.int_repr())
        same(here.cpu().dequantize(), host.dequantize())
        made = torch.quantize_per_tensor(torch.tensor([-1.0, 0.5, 2.0], device=d.type), 0.1, 2, torch.qint8)
    same(made.dequantize(), host.dequantize())


@CHECKS
def integer_histogram(d: Device) -> None:
    counts = torch.histc(torch.tensor([1, 2, 2, 5], dtype=torch.int32, device=d.type), bins=8, min=0, max=7)
    expect(counts.dtype == torch.int32)
    same(counts, [0, 1, 2, 0, 0, 1, 0, 0])


@CHECKS
def half_fft(d: Device) -> None:
    if d.type != "cuda":  # torch refuses it for the others
        return
    signal = torch.arange(8.0)
    found = torch.fft.rfft(signal.to(d.type, torch.half))
    expect(found.dtype == torch.complex32)
    expect(
        torch.allclose(
            torch.view_as_real(found.cpu()).float(), torch.view_as_real(torch.fft.rfft(signal)), rtol=1e-2
        )
    )
    back = torch.fft.irfft(found)
    expect(back.dtype == torch.half)
    expect(torch.allclose(back.cpu().float(), signal, atol=1e-2))


@CHECKS
def ctc_loss(d: Device) -> None:
    def run(place: str) -> torch.Tensor:
        scores = torch.randn(12, 2, 5).to(place).requires_grad_()
        targets = torch.tensor([[1, 2, 3], [4, 1, 1]], device=place)
        lengths = torch.tensor([12, 12]), torch.tensor([3, 2])
        loss = nn.functional.ctc_loss(scores.log_softmax(2), targets, *lengths)
        loss.backward()
        gradient = scores.grad
        assert gradient is not None
        return gradient

    same(*_both(d, run))


@CHECKS
def dlpack(d: Device) -> None:
    if d.type in ("hpu", "sdaa"):  # DLPack has no type of hpu; what sdaa does is not known
        return
    tensor = torch.arange(4.0, device=d.type)
    shared = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))  # type: ignore[attr-defined]
    shared += 1
    expect(shared.device == d.first)
    same(tensor, [1.0, 2.0, 3.0, 4.0])


@CHECKS
def attention_without_data(d: Device) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        query = torch.empty(1, 2, 16, 8, device=d.type, requires_grad=True)
        found = nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    expect(found.shape == (1, 2, 16, 8) and found.device == d.first)


@CHECKS
def flexible_attention(d: Device) -> None:
    if d.type not in ("hpu", "xpu", "cuda"):  # torch refuses the others
        return
    from torch.nn.attention.flex_attention import flex_attention

    def run(place: str) -> torch.Tensor:
        query = torch.randn(1, 2, 16, 8).to(place)
        found: Any = flex_attention(query, query, query, score_mod=lambda score, *_: score * 0.5)
        return torch.as_tensor(found)

    warnings.simplefilter("ignore")
    same(*_both(d, run))
