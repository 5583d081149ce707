# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Evidence from the build of torch and device files; and whose device torch.cuda really is."""

import sys
import warnings
from types import ModuleType

import pytest
import torch

from accel_cuda import probe


@pytest.mark.parametrize(
    ("node", "build", "reported"),
    [
        ("nvidia0", {"cuda": "12.8"}, "cuda 12.8"),
        ("dxg", {"cuda": "12.8"}, "dxg exists"),
        ("kfd", {"hip": "6.4"}, "hip 6.4"),
        ("nvidia0", {}, "built without cuda or hip"),
    ],
)
def test_build_and_device_file_are_evidence(node, build, reported, fake_runtime):
    fake_runtime.device(f"dev/{node}")
    fake_runtime.torch_build(**build)
    evidence = probe.evidence()
    assert (evidence.runtime, evidence.hardware) == (bool(build), True)
    assert reported in evidence.reason


def test_counting_asks_nvml_and_leaves_the_driver_alone(monkeypatch):
    def initialized(*_):
        raise AssertionError("the driver is initialized: children of a fork have no device")

    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: 2)
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", initialized, raising=False)
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    assert probe.confirm().devices == 2


def test_driver_that_does_not_work_is_named(monkeypatch):
    def counted():
        warnings.warn(
            "CUDA initialization: The NVIDIA driver is\ntoo old (Triggered internally at …)", stacklevel=1
        )
        return 0

    counted.__module__ = "torch.cuda"
    monkeypatch.setattr(torch.cuda, "device_count", counted)
    assert probe.confirm().reason == (
        "torch.cuda counts 0; CUDA initialization: The NVIDIA driver is too old"
    )


@pytest.mark.parametrize("name", probe.KNOWN)
def test_known_shim_is_named_with_the_accelerator_that_serves_its_device(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    answer = probe.confirm()
    assert answer.devices == 0
    assert name in answer.reason
    assert repr(probe.KNOWN[name]) in answer.reason


def of_musa():
    return 8


of_musa.__module__ = "torch_musa.core"


@pytest.mark.parametrize(
    ("owner", "name", "other", "reported"),
    [
        (torch.cuda, "is_available", of_musa, "torch_musa.core"),
        (torch.cuda, "device_count", of_musa, "torch_musa.core"),
        (torch, "cuda", torch.xpu, "torch.xpu has replaced it"),
        # IPEX's compatible mode puts single functions there.
        (torch.cuda, "is_available", torch.xpu.is_available, "torch.xpu has replaced it"),
    ],
)
def test_unknown_shim_is_found(owner, name, other, reported, monkeypatch):
    monkeypatch.setattr(owner, name, other)
    answer = probe.confirm()
    assert answer.devices == 0
    assert reported in answer.reason
