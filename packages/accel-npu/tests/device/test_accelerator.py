# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""NPU_Accelerator on a device; ../test_simulated.py runs this on a simulated one."""

from __future__ import annotations

import pytest
import torch
import torch_npu  # noqa: F401

from accel_core.errors import InvalidEnvironment
from accel_npu.accelerator import NPU_Accelerator


@pytest.fixture(scope="module")
def accelerator() -> NPU_Accelerator:
    return NPU_Accelerator()


def test_names(accelerator: NPU_Accelerator) -> None:
    assert accelerator.device_name(1) == "npu:1"
    assert accelerator.communication_backend_name() == "hccl"
    assert accelerator.get_compile_backend() == "inductor"
    assert accelerator.visible_devices_envs() == ["ASCEND_RT_VISIBLE_DEVICES"]


@pytest.mark.parametrize(
    "name",
    [
        "ASCEND_HOME_PATH",
        "HCCL_CONNECT_TIMEOUT",
        "TORCH_HCCL_ZERO_COPY",
        "PYTORCH_NPU_ALLOC_CONF",
        "TASK_QUEUE_ENABLE",
        "LD_LIBRARY_PATH",
        "PATH",
    ],
)
def test_variables_of_the_runtime_reach_other_nodes(accelerator: NPU_Accelerator, name: str) -> None:
    assert name.startswith(tuple(accelerator.export_envs()))


def test_visible_devices_are_set_in_ascending_order_alone(accelerator: NPU_Accelerator) -> None:
    environment: dict[str, str] = {}
    accelerator.set_visible_devices_envs(environment, [0, 3])
    assert environment == {"ASCEND_RT_VISIBLE_DEVICES": "0,3"}
    with pytest.raises(InvalidEnvironment, match="ascending"):
        accelerator.set_visible_devices_envs(environment, [3, 0])
    assert environment == {"ASCEND_RT_VISIBLE_DEVICES": "0,3"}


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
def test_constructors_are_the_runtime_s_types(
    accelerator: NPU_Accelerator, name: str, dtype: torch.dtype
) -> None:
    constructor = getattr(accelerator, name)
    assert constructor is getattr(torch.npu, name)
    made = constructor([1, 2])
    assert (made.dtype, made.device.type, made.tolist()) == (dtype, "npu", [1, 2])


@pytest.mark.parametrize("has_bf16", [True, False])
def test_bf16_is_asked_of_the_device_and_fp16_is_always_there(
    accelerator: NPU_Accelerator, has_bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.npu, "is_bf16_supported", lambda: has_bf16)
    assert accelerator.is_bf16_supported() is has_bf16
    assert accelerator.is_fp16_supported() is True
    halves = [torch.float16, *([torch.bfloat16] if has_bf16 else [])]
    assert accelerator.supported_dtypes() == [torch.float32, *halves]


def test_graphs_replay_what_was_captured(accelerator: NPU_Accelerator) -> None:
    graph = accelerator.create_graph()
    assert isinstance(graph, torch.npu.NPUGraph)
    given = torch.ones(3, device="npu")
    with accelerator.capture_to_graph(graph):
        doubled = given * 2
    given.fill_(5)
    accelerator.replay_graph(graph)
    assert doubled.tolist() == [10.0, 10.0, 10.0]


def test_a_runtime_without_graphs_runs_the_code_inside(
    accelerator: NPU_Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch.npu, "NPUGraph")
    monkeypatch.delattr(torch.npu, "is_current_stream_capturing", raising=False)
    graph = accelerator.create_graph()
    assert graph is None
    with accelerator.capture_to_graph(graph):
        done = torch.ones(2, device="npu") + 1
        assert accelerator.is_current_stream_capturing() is False
    accelerator.replay_graph(graph)
    assert done.tolist() == [2.0, 2.0]


def test_nothing_needs_a_compute_capability(accelerator: NPU_Accelerator) -> None:
    # torch_npu answers None unless TORCH_NPU_DEVICE_CAPABILITY is set; DeepSpeed asks these of every device.
    assert torch.npu.get_device_capability() is None
    assert accelerator.is_triton_supported() is False
    assert accelerator.prefer_triton_grouped_mm() is False


def test_memory_of_each_device_is_its_own(accelerator: NPU_Accelerator) -> None:
    before = [accelerator.memory_allocated(index) for index in (0, 1)]
    kept = torch.empty(1 << 20, dtype=torch.uint8, device="npu:1")
    after = [accelerator.memory_allocated(index) for index in (0, 1)]
    assert after[0] == before[0]
    assert after[1] >= before[1] + kept.numel()
