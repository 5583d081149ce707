# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the class does on a device: run by tests/vendors/test_simulated.py, or on a machine with an Intel GPU."""

import mmap
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accel_ops import memory
from accel_xpu import XPU_Accelerator


@pytest.fixture
def xpu() -> Any:
    return XPU_Accelerator()


@pytest.mark.filterwarnings("ignore:memory is page-aligned but not locked")
@pytest.mark.parametrize("shape", [(3, 5), (), (0,), (4096,)])
def test_aligned_memory_is_torch_s_where_the_system_refuses_to_lock(xpu, shape, monkeypatch):
    monkeypatch.setattr(memory, "_mlock", lambda address, length: False)
    host = torch.ones(shape, dtype=torch.bfloat16)
    pinned = xpu.pin_memory(host, align_bytes=0)
    assert pinned.data_ptr() % mmap.PAGESIZE == 0
    assert torch.equal(pinned, host)
    assert pinned.is_pinned() or not pinned.numel()


def test_double_precision_is_asked_of_the_device(xpu, monkeypatch):
    for answer in (True, False):
        monkeypatch.setattr(
            torch.xpu, "get_device_properties", lambda *_, has=answer: SimpleNamespace(has_fp64=has)
        )
        assert xpu.is_fp64_supported() is answer


def test_memory_is_pinned_for_xpu_where_torch_would_pin_it_for_another(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: torch.device("cuda"))
    xpu = XPU_Accelerator()
    given: list[Any] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, *device: given.append(device) or tensor)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _tensor, *device: given.append(device) or True)
    assert xpu.is_pinned(xpu.pin_memory(torch.ones(3)))
    assert xpu.pin_empty(3, dtype=torch.float32).shape == (3,)
    assert given == [("xpu",)] * 3


@pytest.mark.parametrize("is_causal", [True, False])
def test_megatron_s_attention_is_torch_s(xpu, is_causal):
    q, k, v = torch.randn(3, 2, 4, 5, 8, device="xpu")
    op = xpu.create_op_builder("FlashAttentionBuilder").load()
    found = op.flash_attn_func_v2(q, k, v, 0.0, 0.5, is_causal)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=0.5)
    torch.testing.assert_close(found, wanted)
