# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.hpu, and the optimizer over it, against float64."""

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
from .float64 import adam64, agrees, cases, close, rms_norm, rotary, rotated, steps

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


def test_optimizer_of_hpex(device: Device) -> None:
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
