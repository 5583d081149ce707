# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.hpu, and the optimizers over it, against float64."""

import copy
import importlib
import math
import os
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from .conftest import Device
from .float64 import adam64, agrees, cases, changes, close, lamb64, lists_of, rms_norm, rotary, rotated, steps

LAZY = os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"


def test_optimizer_adamw(device: Device) -> None:
    def call(given: list[Any], step: int, decay: int) -> None:
        device, kept = given[0][0].device, 1 - 0.001 * decay
        size = 0.01 * math.sqrt(1 - 0.99**step) / (1 - 0.9**step)
        keeps = (kept,) if LAZY else (torch.tensor([kept], device=device), kept != 1)
        torch.ops.hpu.optimizer_adamw(*given, torch.tensor([-size], device=device), 0.9, 0.99, 0.0, *keeps)

    steps(device, call, partial(adam64, eps=0.0), step=5, decay=1)


def test_optimizer_ema(device: Device) -> None:
    if LAZY:
        assert not hasattr(torch.ops.hpu, "optimizer_ema")
        pytest.skip("lazy mode has no optimizer_ema")

    def call(given: list[Any]) -> None:
        torch.ops.hpu.optimizer_ema(*given, torch.tensor([0.75], device=given[0][0].device))

    def reference(given: list[Any]) -> None:
        for now, average in zip(*given, strict=True):
            average.copy_(0.75 * average + 0.25 * now)

    steps(device, call, reference, lists=2)


def test_optimizer_lamb_fused_norm(device: Device) -> None:
    def reference(tensors: list[Any], limit: float) -> Any:
        norm = math.sqrt(sum(float((t * t).sum()) for t in tensors))
        return torch.tensor([max(1.0, norm / limit)]).double()

    op = torch.ops.hpu.optimizer_lamb_fused_norm
    for random, dtype in cases(6):
        agrees(device, op, reference, lists_of(random, dtype, 1)[0], float(random.number(1, 20)))


def test_optimizer_lamb_phase1(device: Device) -> None:
    def call(given: list[Any], step: int, averaging: int, decay: int) -> None:
        clip, *unbiased = torch.tensor([2.0, 1 - 0.9**step, 1 - 0.99**step], device=given[0][0].device)
        rates = averaging, 0.9, 0.99, 1e-6
        torch.ops.hpu.optimizer_lamb_phase1(*given, clip, *rates, *unbiased, 0.1 * decay)

    def reference(given: list[Any], **settings: Any) -> None:
        for grad, weight, m, v, norm, length, direction in zip(*given, strict=True):
            made, weight_norm, made_norm = lamb64(grad, weight, m, v, clip=2.0, **settings)
            direction.copy_(made)
            norm.fill_(weight_norm)
            length.fill_(made_norm)

    for random, dtype in cases(6):
        lists = lists_of(random, dtype)
        norms, lengths = ([torch.zeros(1) for _ in range(3)] for _ in range(2))
        lists += [norms, lengths, [torch.zeros(each.shape) for each in lists[0]]]
        changes(device, call, reference, lists, 5, **random.settings(averaging=1, step=5, decay=1))


def test_optimizer_lamb_phase2(device: Device) -> None:
    def call(given: list[Any], decay: int, always: int) -> None:
        directions, lengths, norms, weights = given
        step = torch.tensor(-0.1, device=weights[0].device)
        torch.ops.hpu.optimizer_lamb_phase2(
            weights, lengths, norms, directions, step, 0.1 * decay, bool(always)
        )

    def reference(given: list[Any], decay: int, always: int) -> None:
        for direction, length, norm, weight in zip(*given, strict=True):
            ratio = float(norm / length) if (decay or always) and norm > 0 and length > 0 else 1.0
            weight.sub_(0.1 * ratio * direction)

    for random, dtype in cases(6):
        weights, directions = lists_of(random, dtype, 2)
        norms, lengths = ([torch.tensor([float(random.number(0, 3))]) for _ in weights] for _ in range(2))
        lists = [directions, lengths, norms, weights]
        changes(device, call, reference, lists, 1, **random.settings(decay=1, always=1))


def test_cast_to_fp8_v2(device: Device) -> None:
    for random, dtype in cases(4):
        x = random.tensor(random.shape(2), dtype).to(device.type) * 100
        wide = x.cpu().double()
        columns = (torch.rand(x.shape[1], generator=random.generator) + 0.5).tolist()
        for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
            top = torch.finfo(kind).max
            one = torch.tensor(3.0, device=device.type)
            for scale, shape in ((None, None), (one, None), (3.0, None), (columns, [1, -1])):
                factor = 1.0 if scale is None else torch.as_tensor(scale).cpu().float().double()
                found, largest = torch.ops.hpu.cast_to_fp8_v2(x, scale, False, True, kind, shape)
                wanted = (wide * factor).clamp(-top, top)
                error = (found.cpu().double() - wanted).abs()
                # Half a step of the format, or of its smallest numbers.
                step, smallest = torch.finfo(kind).eps, torch.finfo(kind).smallest_normal
                allowed = (wanted.abs() * step / 2).clamp(min=smallest)
                assert found.dtype == kind
                assert (error <= allowed * 1.01).all(), f"{kind} {scale}"
                close(largest, wide.abs().max())


def test_cast_from_fp8(device: Device) -> None:
    for random, dtype in cases(4):
        x = random.tensor(random.shape(2)).to(torch.float8_e4m3fn).to(device.type)
        for scale in (None, torch.tensor(0.5, device=device.type), 0.5):
            found = torch.ops.hpu.cast_from_fp8(x, scale, dtype)
            assert found.dtype == dtype
            close(found, x.cpu().double() * (1.0 if scale is None else 0.5))


def test_rms_norm(device: Device) -> None:
    for random, dtype in cases(6):
        shape = random.shape(3)
        tensors = random.tensor(shape, dtype), random.tensor(shape[-1:], dtype)
        agrees(device, torch.ops.hpu.rms_norm, rms_norm, *tensors, 1e-5)


def test_rotary_pos_embedding(device: Device) -> None:
    def reference(x: Any, sin: Any, cos: Any, _ids: None, _offset: int, mode: int) -> Any:
        return rotary(x, cos, sin, "interleave" if mode else "half")

    for random, dtype in cases(4):
        x, sin, cos = rotated(random, dtype, 8)
        for mode in (0, 1):
            agrees(device, torch.ops.hpu.rotary_pos_embedding, reference, x, sin, cos, None, 0, mode)


def test_optimizers_of_hpex(device: Device) -> None:
    optimizers: Any = importlib.import_module("habana_frameworks.torch.hpex.optimizers")
    torch.manual_seed(0)
    plain = nn.Linear(5, 3)
    fused = copy.deepcopy(plain).to(device.type)
    theirs = torch.optim.AdamW(plain.parameters(), lr=0.1, eps=1e-12, weight_decay=0.1)
    mine = optimizers.FusedAdamW(fused.parameters(), lr=0.1, eps=1e-12, weight_decay=0.1)
    for _ in range(3):
        for p, q in zip(plain.parameters(), fused.parameters(), strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.to(device.type)
        theirs.step()
        mine.step()
    for p, q in zip(plain.parameters(), fused.parameters(), strict=True):
        close(q.detach(), p.detach().double())
    before = fused.weight.detach().clone()
    optimizers.FusedLamb(fused.parameters(), lr=0.1).step()
    # A first step with decay goes a tenth of the weight's own length.
    length = float((fused.weight - before).detach().norm() / before.norm())
    assert abs(length - 0.1) < 1e-5, f"a LAMB step of {length} of the weight, expected 0.1"
