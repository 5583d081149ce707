# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Figures, data types and tensors of the CPU accelerator."""

from __future__ import annotations

import pytest
import torch

from accel_cpu.accelerator import CPU_Accelerator


@pytest.mark.parametrize("index", [None, 0])
def test_memory_figures_are_bytes(cpu: CPU_Accelerator, index: int | None) -> None:
    figures = [
        cpu.memory_allocated(index),
        cpu.max_memory_allocated(index),
        cpu.memory_cached(index),
        cpu.max_memory_cached(index),
        cpu.memory_reserved(index),
        cpu.max_memory_reserved(index),
        cpu.total_memory(index),
        cpu.available_memory(index),
    ]
    assert all(type(figure) is int and figure > 1 << 20 for figure in figures)
    assert cpu.memory_allocated(index) < cpu.total_memory(index)
    assert cpu.available_memory(index) < cpu.total_memory(index)


def test_memory_stats_have_torch_s_keys(cpu: CPU_Accelerator) -> None:
    stats = cpu.memory_stats()
    for kind in ("allocated_bytes", "reserved_bytes"):
        assert type(stats[f"{kind}.all.current"]) is int
        assert stats[f"{kind}.all.peak"] >= stats[f"{kind}.all.current"] > 0


@pytest.mark.parametrize(
    "reset", ["reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"]
)
def test_every_reset_starts_the_peak_anew(cpu: CPU_Accelerator, reset: str) -> None:
    size = 200 << 20
    block = torch.ones(size, dtype=torch.uint8)
    with_block = cpu.max_memory_allocated()
    del block
    getattr(cpu, reset)()
    assert cpu.max_memory_allocated() < with_block - size // 2
    cpu.empty_cache()


def test_dtypes(cpu: CPU_Accelerator) -> None:
    assert cpu.is_bf16_supported() is True
    assert cpu.is_fp64_supported() is True
    assert cpu.is_triton_supported() is False
    fp16 = cpu.is_fp16_supported()
    assert type(fp16) is bool
    assert cpu.supported_dtypes()[0] is torch.float32
    assert torch.bfloat16 in cpu.supported_dtypes()
    assert (torch.float16 in cpu.supported_dtypes()) is fp16


@pytest.mark.parametrize("answer", [True, False, None])
def test_fp16_is_what_onednn_says_as_a_bool(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch, answer: bool | None
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_fp16_supported", lambda: answer, raising=False)
    assert cpu.is_fp16_supported() is bool(answer)


@pytest.mark.parametrize("error", [AttributeError("no such op"), RuntimeError("built without oneDNN")])
def test_fp16_without_onednn(cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse() -> bool:
        raise error

    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_fp16_supported", refuse, raising=False)
    assert cpu.is_fp16_supported() is False


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("BFloat16Tensor", torch.bfloat16),
        ("ByteTensor", torch.uint8),
        ("DoubleTensor", torch.float64),
        ("FloatTensor", torch.float32),
        ("HalfTensor", torch.float16),
        ("IntTensor", torch.int32),
        ("LongTensor", torch.int64),
    ],
)
def test_typed_constructors_take_data_or_a_shape(cpu: CPU_Accelerator, name: str, dtype: torch.dtype) -> None:
    kind = getattr(cpu, name)
    assert torch.equal(kind([1, 2]), torch.tensor([1, 2], dtype=dtype))
    assert kind(3).shape == (3,)
    assert kind(2, 3).dtype is dtype
    assert isinstance(torch.zeros(1, dtype=dtype), kind)


def test_on_accelerator(cpu: CPU_Accelerator) -> None:
    assert cpu.on_accelerator(torch.ones(1)) is True
    assert cpu.on_accelerator(torch.ones(1, device="meta")) is False


def test_pinning_gives_the_tensor_itself_in_every_call_shape(cpu: CPU_Accelerator) -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    assert cpu.pin_memory(tensor) is tensor
    assert cpu.pin_memory(tensor, 0) is tensor  # DeepSpeed 0.18: align_bytes
    assert cpu.pin_memory(tensor, align_bytes=0) is tensor
    assert cpu.is_pinned(tensor) is False


def test_pinning_without_a_copy_gives_a_new_buffer(cpu: CPU_Accelerator) -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    buffers = [cpu.pin_memory(tensor, make_copy=False, match_shape=match) for match in (True, False)]
    assert [tuple(buffer.shape) for buffer in buffers] == [(2, 3), (6,)]
    assert len({each.data_ptr() for each in (tensor, *buffers)}) == 3


def test_empty_pinned_memory_is_plain_memory(cpu: CPU_Accelerator) -> None:
    fresh = cpu.pin_empty(2, 3, dtype=torch.float64)
    assert (fresh.shape, fresh.dtype) == ((2, 3), torch.float64)
    assert cpu.pin_empty_like(fresh, dtype=torch.int32).dtype is torch.int32
    assert cpu.is_pinned(fresh) is False
