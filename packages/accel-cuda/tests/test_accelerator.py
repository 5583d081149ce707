# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the class answers without opening a device: on a login node, before a fork, on ROCm."""

import importlib.util
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accel_cuda import CUDA_Accelerator, accelerator, ranges


@pytest.fixture
def cuda(library: Any, monkeypatch: pytest.MonkeyPatch) -> CUDA_Accelerator:
    """A machine with three GPUs, none of which may be opened."""

    def opened(*_: object) -> Any:
        raise AssertionError("a context is opened")

    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: 3)
    for name in ("_lazy_init", "get_device_capability", "get_device_properties", "mem_get_info"):
        monkeypatch.setattr(torch.cuda, name, opened)
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", opened, raising=False)
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    return CUDA_Accelerator()


def test_free_memory_is_nvml_s_until_there_is_a_context(
    cuda: CUDA_Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [cuda.available_memory(), cuda.available_memory(1)] == [1000, 2000]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-44444444-dddd")
    assert cuda.available_memory() == 400
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (77, 100))
    assert cuda.available_memory(0) == 77


@pytest.mark.parametrize(
    ("device", "fp16", "triton"), [("0", True, True), ("1", True, True), ("2", True, False)]
)
def test_types_and_triton_follow_the_capability_without_opening(
    device: str, fp16: bool, triton: bool, cuda: CUDA_Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", device)
    assert cuda.is_fp16_supported() is fp16
    assert cuda.is_triton_supported() is triton


@pytest.mark.parametrize(
    ("major", "allowed", "fp16"), [(7, "0", True), (6, "0", False), (6, "1", True), (5, "1", False)]
)
def test_fp16_of_old_devices_is_the_user_s_choice(
    major: int, allowed: str, fp16: bool, cuda: CUDA_Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerator.nvml, "capability", lambda index: (major, 0))
    monkeypatch.setenv("DS_ALLOW_DEPRECATED_FP16", allowed)
    assert cuda.is_fp16_supported() is fp16


@pytest.mark.parametrize(
    ("major", "installed", "fused", "preferred"),
    [
        (8, True, True, True),
        (9, True, True, False),
        (9, True, False, True),
        (8, False, True, False),
        (7, True, True, False),
    ],
)
def test_triton_s_grouped_product_is_preferred_where_torch_s_is_slow(
    major: int, installed: bool, fused: bool, preferred: bool,
    cuda: CUDA_Accelerator, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(accelerator.nvml, "capability", lambda index: (major, 0))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if installed else None)
    if not fused:
        monkeypatch.delattr(torch, "_grouped_mm")
    assert cuda.prefer_triton_grouped_mm() is preferred
    assert "triton" not in sys.modules


def test_triton_stays_unimported_and_unsupported_on_rocm(
    cuda: CUDA_Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "_device_count_amdsmi", lambda: 2)
    rocm = CUDA_Accelerator()
    assert rocm.is_available()
    assert not rocm.is_triton_supported()
    assert not rocm.prefer_triton_grouped_mm()
    assert "triton" in rocm.traits
    assert "triton" not in sys.modules


def test_login_node_may_plan_for_every_type(library: Any) -> None:
    cuda = CUDA_Accelerator()
    assert not cuda.is_available()
    assert cuda.supported_dtypes() == [torch.float32, torch.float16, torch.bfloat16]
    assert not cuda.is_triton_supported()


def test_collectives_are_nccl_and_its_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = CUDA_Accelerator()
    assert cuda.communication_backend_name() == "nccl"
    assert cuda.communication_backend_version() is None, "this torch is built without NCCL"
    monkeypatch.setattr(torch._C, "_nccl_version", lambda: (2 << 32) | (27 << 16) | 3, raising=False)
    monkeypatch.setattr(torch._C, "_nccl_version_suffix", lambda: b"rc1", raising=False)
    assert cuda.communication_backend_version() == (2, 27, 3)


def test_host_memory_is_registered_with_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []
    driver = SimpleNamespace(
        cudaHostRegister=lambda *arguments: calls.append(arguments) or 0,
        cudaHostUnregister=lambda *arguments: calls.append(arguments) or 1,
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: driver)
    monkeypatch.setattr(
        torch.cuda, "check_error", lambda code: (_ for _ in ()).throw(RuntimeError) if code else None
    )
    cuda = CUDA_Accelerator()
    assert cuda.register_host_memory(4096, 100) is True
    with pytest.raises(RuntimeError):
        cuda.unregister_host_memory(4096)
    assert calls == [(4096, 100, 0), (4096,)]


def test_ranges_without_a_domain_or_the_package_are_torch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite has those in a domain."""
    seen: list[str] = []
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", seen.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: seen.append("pop"))
    for name in ("_domain", "_torch_has_ranges"):
        monkeypatch.setattr(ranges, name, getattr(ranges, name).__wrapped__)
    cuda = CUDA_Accelerator()
    for domain in ({}, {"domain": "elsewhere"}):
        cuda.range_push("step", **domain)
        cuda.range_pop(**domain)
    assert seen == ["step", "pop", "step", "pop"]


def test_unknown_builder_is_none_and_known_ones_say_what_they_lack() -> None:
    cuda = CUDA_Accelerator()
    assert cuda.get_op_builder("FlashAttentionBuilder") is None
    with pytest.raises(TypeError):  # flash attention of Megatron-DeepSpeed is then taken from its own package
        cuda.get_op_builder("FlashAttentionBuilder")().load()
    for name in ("FlashAttentionBuilder", "NotImplementedBuilder"):
        assert type(cuda.create_op_builder(name)).__name__ == "NotImplementedBuilder"
    assert cuda.get_op_builder("NotImplementedBuilder").__name__ == "NotImplementedBuilder"
