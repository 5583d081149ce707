# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.hpu, and the optimizers over it, against float64."""

import copy
import importlib
import math
import os
from typing import Any

import pytest
import torch
from torch import nn

from accel_ops.reference import adam, step_lists

from .conftest import Device
from .float64 import agrees, cases, changes, close, lamb64, optimizer_lists, rms_norm, turned

LAZY = os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"


def test_optimizer_adamw(device: Device) -> None:
    for random, dtype in cases(6):
        step, decay = random.number(1, 5), 0.1 * random.number(0, 1)
        size = 0.01 * math.sqrt(1 - 0.99**step) / (1 - 0.9**step)

        def call(given: list[Any], s: Any = (size, decay)) -> None:
            device = given[0][0].device
            kept = 1 - 0.01 * s[1]
            keeps = (kept,) if LAZY else (torch.tensor([kept], device=device), kept != 1)
            negative = torch.tensor([-s[0]], device=device)
            torch.ops.hpu.optimizer_adamw(*given, negative, 0.9, 0.99, 0.0, *keeps)

        def reference(given: list[Any], s: Any = (step, decay)) -> None:
            step_lists(
                adam, given, lr=0.01, betas=(0.9, 0.99), eps=0.0, weight_decay=s[1], decoupled=True, step=s[0]
            )

        changes(device, call, reference, optimizer_lists(random, dtype), in_out=3)


def test_optimizer_ema(device: Device) -> None:
    if LAZY:
        assert not hasattr(torch.ops.hpu, "optimizer_ema")
        pytest.skip("lazy mode has no optimizer_ema")
    for random, dtype in cases(4):

        def call(given: list[Any]) -> None:
            torch.ops.hpu.optimizer_ema(*given, torch.tensor([0.75], device=given[0][0].device))

        def reference(given: list[Any]) -> None:
            for now, average in zip(*given, strict=True):
                average.copy_(0.75 * average + 0.25 * now)

        changes(device, call, reference, optimizer_lists(random, dtype, 2), in_out=1)


def test_optimizer_lamb_fused_norm(device: Device) -> None:
    def reference(tensors: list[Any], limit: float) -> Any:
        norm = math.sqrt(sum(float((t * t).sum()) for t in tensors))
        return torch.tensor([max(1.0, norm / limit)]).double()

    op = torch.ops.hpu.optimizer_lamb_fused_norm
    for random, dtype in cases(6):
        agrees(device, op, reference, optimizer_lists(random, dtype, 1)[0], float(random.number(1, 20)))


def test_optimizer_lamb_phase1(device: Device) -> None:
    for random, dtype in cases(6):
        decay, averaging, step = 0.1 * random.number(0, 1), random.number(0, 1), random.number(1, 5)
        grads, weights, m, v = optimizer_lists(random, dtype)
        norms, lengths = ([torch.zeros(1) for _ in grads] for _ in range(2))
        directions = [torch.zeros(each.shape) for each in grads]
        corrections = [1 - 0.9**step, 1 - 0.99**step]

        def call(given: list[Any], s: Any = (averaging, decay, corrections)) -> None:
            device = given[0][0].device
            clip, first, second = (torch.tensor(each, device=device) for each in (2.0, *s[2]))
            torch.ops.hpu.optimizer_lamb_phase1(*given, clip, s[0], 0.9, 0.99, 1e-6, first, second, s[1])

        def reference(given: list[Any], s: Any = (averaging, decay, corrections)) -> None:
            o = {"clip": 2.0, "beta1": 0.9, "beta2": 0.99, "averaging": s[0], "first": s[2][0], "second": s[2][1],
                 "eps": 1e-6, "decay": s[1]}  # fmt: skip
            for grad, weight, m, v, norm, length, direction in zip(*given, strict=True):
                made, weight_norm, made_norm = lamb64(grad, weight, m, v, o=o)
                direction.copy_(made)
                norm.fill_(weight_norm)
                length.fill_(made_norm)

        changes(device, call, reference, [grads, weights, m, v, norms, lengths, directions], in_out=5)


def test_optimizer_lamb_phase2(device: Device) -> None:
    for random, dtype in cases(6):
        decay, always = 0.1 * random.number(0, 1), bool(random.number(0, 1))
        weights, directions = optimizer_lists(random, dtype, 2)
        norms, lengths = ([torch.tensor([float(random.number(0, 3))]) for _ in weights] for _ in range(2))

        def call(given: list[Any], s: Any = (decay, always)) -> None:
            directions, lengths, norms, weights = given
            step = torch.tensor(-0.1, device=weights[0].device)
            torch.ops.hpu.optimizer_lamb_phase2(weights, lengths, norms, directions, step, *s)

        def reference(given: list[Any], s: Any = (decay, always)) -> None:
            for direction, length, norm, weight in zip(*given, strict=True):
                ratio = float(norm / length) if (s[0] or s[1]) and norm > 0 and length > 0 else 1.0
                weight.sub_(0.1 * ratio * direction)

        changes(device, call, reference, [directions, lengths, norms, weights], in_out=1)


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
        return x * cos + turned(x, "interleave" if mode else "half") * sin

    for random, dtype in cases(4):
        batch, length, heads = random.shape(3)
        x = random.tensor((batch, length, heads, 8), dtype)
        sin, cos = (random.tensor((1, length, 1, 8), dtype) for _ in range(2))
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
