# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where KLXPU_Accelerator differs from others, and where DeepSpeed's own class was wrong."""

import pytest
import torch

from accel_klxpu import KLXPU_Accelerator
from accel_ops.optimizers.fused import multi_tensor_adam


@pytest.fixture
def klxpu() -> KLXPU_Accelerator:
    return KLXPU_Accelerator()


def test_names(klxpu):
    # ZeRO 3 creates tensors on `_name`, which is "klxpu" in DeepSpeed's class.
    assert torch.zeros(1, device=klxpu._name).device == torch.device("cuda:0")
    assert [klxpu.device_name(1), klxpu.communication_backend_name()] == ["cuda:1", "nccl"]
    assert [*klxpu.visible_devices_envs(), klxpu.is_triton_supported()] == ["CUDA_VISIBLE_DEVICES", False]
    assert isinstance(klxpu.create_graph(), torch.cuda.CUDAGraph)


@pytest.mark.parametrize(("value", "host"), [(None, True), ("0", True), ("1", False)])
def test_events_measure_time_if_they_are_enabled(klxpu, value, host, monkeypatch):
    monkeypatch.delenv("XPU_EVENT_KL3_ENABLE", raising=False)
    if value is not None:
        monkeypatch.setenv("XPU_EVENT_KL3_ENABLE", value)
    assert klxpu.use_host_timers() is host


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("corrected", [0, 1])
def test_steps_are_adams_with_the_operator_for_float32(klxpu, mode, corrected, dtype, monkeypatch):
    builder = klxpu.create_op_builder("FusedAdamBuilder")
    step, called = builder.load().multi_tensor_adam, []
    assert builder.reason == "torch.ops.custom_ops.multi_tensor_adam"
    op = torch.ops.custom_ops.multi_tensor_adam
    monkeypatch.setattr(
        torch.ops.custom_ops, "multi_tensor_adam", lambda *given: (called.append(1), op(*given))
    )
    lists = [[torch.full((n,), 0.5 + n, dtype=dtype) for n in (1, 5)] for _ in range(4)]
    there = [[each.cuda() for each in tensors] for tensors in lists]
    for number in (1, 2):
        numbers = 1e-2, 0.9, 0.999, 1e-8, number, mode, corrected, 0.1
        multi_tensor_adam(2048, torch.zeros(1), lists, *numbers)
        step(2048, torch.zeros(1, device="cuda"), there, *numbers)
    assert len(called) == 2 * (dtype == torch.float32)
    for mine, plain in zip(there, lists, strict=True):
        torch.testing.assert_close([each.cpu() for each in mine], plain)
