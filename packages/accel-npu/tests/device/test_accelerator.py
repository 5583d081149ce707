# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""NPU_Accelerator on a device; tests/vendors/test_simulated.py runs this on a simulated one."""

from types import SimpleNamespace

import pytest
import torch
import torch_npu  # noqa: F401

from accel_core.errors import InvalidEnvironment
from accel_npu.accelerator import NPU_Accelerator


@pytest.fixture(scope="module")
def accelerator() -> NPU_Accelerator:
    return NPU_Accelerator()


def test_names(accelerator):
    assert accelerator.device_name(1) == "npu:1"
    assert accelerator.communication_backend_name() == "hccl"
    assert accelerator.get_compile_backend() == "inductor"
    assert accelerator.visible_devices_envs() == ["ASCEND_RT_VISIBLE_DEVICES"]


@pytest.mark.parametrize("ids", [[3, 0], [0, 0], ["GPU-1"], [0, "x"], [-1, 0]], ids=str)
def test_only_ids_that_ascend_get_through(accelerator, ids):
    environment = {"ASCEND_RT_VISIBLE_DEVICES": "0,3"}
    with pytest.raises(InvalidEnvironment, match="ASCEND_RT_VISIBLE_DEVICES") as caught:
        accelerator.set_visible_devices_envs(environment, ids)
    assert ", ".join(map(str, ids)) in str(caught.value)
    assert environment == {"ASCEND_RT_VISIBLE_DEVICES": "0,3"}


@pytest.mark.parametrize("has_bf16", [True, False])
def test_bf16_is_asked_of_the_device_and_fp16_is_always_there(accelerator, has_bf16, monkeypatch):
    monkeypatch.setattr(torch.npu, "is_bf16_supported", lambda: has_bf16)
    assert accelerator.is_bf16_supported() is has_bf16
    assert accelerator.is_fp16_supported() is True
    halves = [torch.float16, *([torch.bfloat16] if has_bf16 else [])]
    assert accelerator.supported_dtypes() == [torch.float32, *halves]


def test_a_runtime_without_graphs_runs_the_code_inside(accelerator, monkeypatch):
    monkeypatch.delattr(torch.npu, "NPUGraph")
    monkeypatch.delattr(torch.npu, "is_current_stream_capturing", raising=False)
    graph = accelerator.create_graph()
    assert graph is None
    with accelerator.capture_to_graph(graph):
        done = torch.ones(2, device="npu") + 1
        assert accelerator.is_current_stream_capturing() is False
    accelerator.replay_graph(graph)
    assert done.tolist() == [2.0, 2.0]


@pytest.fixture
def page() -> torch.Tensor:
    """A page of host memory that torch has not locked."""
    memory = torch.zeros(2 * 4096, dtype=torch.uint8)
    first = -memory.data_ptr() % 4096
    return memory[first : first + 4096]


def test_refused_registration_is_reported_once(accelerator, page, caplog):
    for _ in range(2):
        assert accelerator.register_host_memory(page.data_ptr() + 1, 16) is False
    (record,) = caplog.records
    assert "npuHostRegister returned" in record.getMessage()


@pytest.mark.parametrize("fault", ["absent", "failing"])
def test_runtime_without_registration_leaves_memory_locked_only(accelerator, page, fault, monkeypatch):
    def failing():
        raise RuntimeError("cannot be initialized")

    if fault == "absent":
        monkeypatch.delattr(torch.npu, "npurt")
    else:
        monkeypatch.setattr(torch.npu, "npurt", failing)
    assert accelerator.register_host_memory(page.data_ptr(), page.numel()) is False
    accelerator.unregister_host_memory(page.data_ptr())


def test_memory_of_deepspeeds_allocator_is_registered_by_pages(accelerator, monkeypatch):
    assert accelerator.pin_memory_alignment() == 4096
    pin_memory = pytest.importorskip(
        "deepspeed.utils.pin_memory", reason="DeepSpeed 0.18 has no such allocator"
    )
    calls: list[tuple[int, ...]] = []
    runtime = torch.npu.npurt()
    registered = SimpleNamespace(
        npuHostRegister=lambda *given: calls.append(given) or runtime.npuHostRegister(*given),
        npuHostUnregister=lambda *given: calls.append(given) or runtime.npuHostUnregister(*given),
    )
    monkeypatch.setattr(torch.npu, "npurt", lambda: registered)
    pins = pin_memory.NativePinnedMemory()
    pinned = pins.pin(torch.arange(6.0))
    first = pinned.data_ptr() - pinned.data_ptr() % 4096
    assert calls[0][0] == first
    assert calls[0][2] == 2, "ACL_HOST_REG_MAPPED"
    pins.unpin(pinned)
    assert calls[1:] == [(first,)]
