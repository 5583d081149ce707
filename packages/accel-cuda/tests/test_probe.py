# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Evidence from the build of torch and device files; and whose device torch.cuda really is."""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from accel_cuda import probe


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`machine("nvidia0", cuda="12.8")`: these device files, this build of torch."""
    monkeypatch.setenv("ACCEL_SYSROOT", str(tmp_path))

    def make(*nodes: str, **build: str) -> None:
        (tmp_path / "dev").mkdir()
        for node in nodes:
            (tmp_path / "dev" / node).touch()
        (tmp_path / "torch").mkdir()
        lines = (f"{name} = {value!r}\n" for name, value in build.items())
        (tmp_path / "torch" / "version.py").write_text("".join(lines))

    return make


@pytest.mark.parametrize(
    ("node", "build", "reported"),
    [
        ("nvidia0", {"cuda": "12.8"}, "cuda 12.8"),
        ("dxg", {"cuda": "12.8"}, "dxg exists"),
        ("kfd", {"hip": "6.4"}, "hip 6.4"),
    ],
)
def test_build_and_device_file_are_evidence(node, build, reported, machine):
    machine(node, **build)
    evidence = probe.evidence()
    assert (evidence.runtime, evidence.hardware) == (True, True)
    assert reported in evidence.reason


def test_build_for_cpus_is_no_runtime(machine):
    machine("nvidia0")
    evidence = probe.evidence()
    assert not evidence.runtime
    assert "built without cuda or hip" in evidence.reason


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


@pytest.mark.parametrize("function", ["is_available", "device_count"])
def test_unknown_shim_is_known_by_what_it_replaces(function, monkeypatch):
    def replacement():
        return 8

    replacement.__module__ = "torch_musa.core"
    monkeypatch.setattr(torch.cuda, function, replacement)
    answer = probe.confirm()
    assert answer.devices == 0
    assert "torch_musa.core" in answer.reason


def test_device_module_of_torch_under_the_name_cuda_is_a_shim(monkeypatch):
    monkeypatch.setattr(torch, "cuda", torch.xpu)
    assert "torch.xpu has replaced it" in probe.confirm().reason
    monkeypatch.undo()
    # IPEX's compatible mode puts single functions there.
    monkeypatch.setattr(torch.cuda, "is_available", torch.xpu.is_available)
    assert "torch.xpu has replaced it" in probe.confirm().reason
