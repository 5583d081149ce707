# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where SUPA_Accelerator differs from others, and where DeepSpeed's own class falls short."""

import pytest
import torch

from accel_supa import SUPA_Accelerator


@pytest.fixture
def supa() -> SUPA_Accelerator:
    return SUPA_Accelerator()


def test_names(supa):
    assert [supa._name, supa.device_name(1), supa.communication_backend_name()] == ["supa", "supa:1", "bccl"]
    assert torch.distributed.Backend.backend_capability["bccl"] == ["supa"]
    assert supa.visible_devices_envs() == ["SUPA_VISIBLE_DEVICES"]
    assert supa.communication_backend_version() == (2, 27, 7)
    assert supa.is_triton_supported()


def test_cuda_is_supa(supa):
    assert torch.cuda.is_available()
    assert torch.ones(1, device="cuda").device == torch.device(supa.device_name(0))


def test_host_memory_is_registered_once(supa):
    memory = torch.zeros(1 << 12, dtype=torch.uint8)
    assert supa.register_host_memory(memory.data_ptr(), memory.nbytes)
    with pytest.raises(RuntimeError, match="712"):
        supa.register_host_memory(memory.data_ptr(), memory.nbytes)
    supa.unregister_host_memory(memory.data_ptr())
    with pytest.raises(RuntimeError, match="713"):
        supa.unregister_host_memory(memory.data_ptr())


@pytest.mark.parametrize("built", [True, False])
def test_ranges_reach_the_profiler_if_there_is_one(supa, built, monkeypatch):
    seen = []

    def call(*names):
        seen.append(names)
        if not built:
            raise RuntimeError("BRTX functions not installed. Are you sure you have a BRTX library?")

    for name in ("range_push", "range_pop"):
        monkeypatch.setattr(torch.supa.brtx, name, call)
    supa.range_push("outer", domain="DeepSpeed", category="forward")
    supa.range_pop()
    assert seen == [("outer",), ()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_op_gets_float32_only(supa, dtype, monkeypatch):
    builder = supa.create_op_builder("FusedAdamBuilder")
    step = builder.load().multi_tensor_adam
    assert builder.reason == "torch.ops.deepspeed.multi_tensor_adam"
    op, called = torch.ops.deepspeed.multi_tensor_adam, []

    def counted(*arguments):
        called.append(arguments[2][0].dtype)
        return op(*arguments)

    monkeypatch.setattr(torch.ops.deepspeed, "multi_tensor_adam", counted)
    lists = [[torch.ones(5, device="supa", dtype=dtype)] for _ in range(4)]
    step(2048, torch.zeros(1, device="supa"), lists, 1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)
    assert called == [dtype] * (dtype == torch.float32)
    assert lists[1][0].float().max() < 1
