# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""MPS_Accelerator on the simulated device, where upstream's stubs return nothing."""

import pytest
import torch

from accel_mps.accelerator import MPS_Accelerator


@pytest.fixture(scope="module")
def accelerator() -> MPS_Accelerator:
    return MPS_Accelerator()


def test_memory_left_is_what_the_driver_does_not_hold(accelerator, monkeypatch):
    total = torch.mps.recommended_max_memory()
    assert accelerator.total_memory() == total
    assert accelerator.available_memory() == total - torch.mps.driver_allocated_memory()
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: total + 1)
    assert accelerator.available_memory() == 0


@pytest.mark.parametrize(("macos_14", "dtypes"), [(True, 3), (False, 2)])
def test_bfloat16_is_asked_of_the_system(macos_14, dtypes, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: macos_14)
    accelerator = MPS_Accelerator()
    assert accelerator.is_bf16_supported() is macos_14
    assert ("bf16" in accelerator.traits) is not macos_14
    assert len(accelerator.supported_dtypes()) == dtypes
    assert accelerator.is_fp16_supported() is True
    assert accelerator.is_fp64_supported() is False


def test_host_memory_is_shared_and_need_not_be_pinned(accelerator):
    """torch's own pin_memory gives a tensor of the device instead, from 2.7 on: DeepSpeed may not call it."""
    tensor = torch.ones(3)
    assert accelerator.pin_memory(tensor) is tensor
    assert accelerator.pin_empty(3, dtype=torch.float32).device.type == "cpu"
    assert accelerator.is_pinned(tensor) is True
    assert accelerator.is_pinned(tensor.to("mps")) is False


def test_seeds_and_limits_of_deepspeed_s_class_are_there(accelerator, monkeypatch):
    given: list[object] = []
    monkeypatch.setattr(torch.mps, "seed", lambda: given.append("seed"))
    monkeypatch.setattr(torch.mps, "set_per_process_memory_fraction", given.append)
    accelerator.seed()
    accelerator.set_per_process_memory_fraction(0.5)
    assert given == ["seed", 0.5]


def test_no_variable_restricts_the_gpu(accelerator):
    """T29."""
    assert accelerator.visible_devices_envs() == []
    assert "PYTORCH_MPS" in accelerator.export_envs()
