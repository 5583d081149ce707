# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The variant through IPEX: which releases, how its import fails, what the build for CPUs is."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accel_xpu import probe as native
from accel_xpu.ipex import probe

WORKS = """
    from types import SimpleNamespace
    __version__ = "{version}"
    _C = SimpleNamespace(_has_xpu=lambda: {xpu})
"""
#: The source says os.exit, which there is not; seen in 2.8.0 beside torch 2.13.
OTHER_TORCH = (
    "print('ERROR! Intel Extension for PyTorch needs to work with PyTorch 2.8.*')\nimport os\nos.exit(127)"
)


@pytest.fixture
def ipex(install: Any) -> Callable[..., None]:
    """`ipex("2.8.0", source)`: that release is installed."""

    def write(version: str, source: str = WORKS, xpu: bool = True) -> None:
        install("intel_extension_for_pytorch", source.format(version=version, xpu=xpu), version=version)

    return write


@pytest.mark.parametrize("version", ["2.1.10+xpu", "2.9.0"])
def test_release_for_a_torch_out_of_range_is_told(version: str, ipex: Any) -> None:
    ipex(version)
    evidence = probe.evidence()
    assert not evidence.runtime
    assert f"{version} is installed, >=2.5" in evidence.reason


def test_release_in_range_and_a_node_are_evidence(ipex: Any, render_node: Any) -> None:
    ipex("2.8.10+xpu")
    render_node("0x8086")
    evidence = probe.evidence()
    assert (evidence.runtime, evidence.hardware) == (True, True)
    assert "2.8.10+xpu" in evidence.reason


def test_import_beside_another_torch_fails_with_both_versions(
    ipex: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ipex("2.8.0", OTHER_TORCH)
    with pytest.raises(ImportError) as raised:
        probe.confirm()
    reported = str(raised.value)
    assert "made for torch 2.8, this is torch" in reported
    assert "AttributeError: module 'os' has no attribute 'exit'" in reported
    assert capsys.readouterr().out == "", "detection prints nothing"


def test_build_for_cpus_is_a_device_less_runtime_and_not_broken(ipex: Any) -> None:
    ipex("2.8.0", xpu=False)
    answer = probe.confirm()
    assert answer.devices == 0
    assert "build for CPUs" in answer.reason


def test_devices_are_those_that_torch_counts(ipex: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ipex("2.8.10+xpu")
    xpu = importlib.import_module("torch").xpu
    monkeypatch.setattr(xpu, "is_available", lambda: True)
    monkeypatch.setattr(xpu, "device_count", lambda: 4)
    assert probe.confirm().devices == native.confirm().devices == 4


@pytest.fixture
def accelerator(ipex: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """`accelerator("2.8.0")`: the accelerator of that release."""

    def construct(version: str) -> Any:
        ipex(version)
        name = "accel_xpu.ipex.accelerator"
        monkeypatch.setitem(sys.modules, name, sys)  # so that what is imported now goes with the test
        del sys.modules[name]
        return importlib.import_module(name).XPU_Accelerator()

    return construct


@pytest.mark.parametrize(
    ("version", "host"), [("2.5.10+xpu", True), ("2.6.10", False), ("2.10.0", False), ("2.8.0", False)]
)
def test_events_before_release_2_6_tell_no_time(
    version: str, host: bool, accelerator: Callable[[str], Any]
) -> None:
    assert accelerator(version).use_host_timers() is host


def test_extensions_are_built_by_ipex_s_command(accelerator: Callable[[str], Any], tmp_path: Path) -> None:
    made = accelerator("2.8.0")
    folder = tmp_path / "intel_extension_for_pytorch" / "xpu"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "cpp_extension.py").write_text("class DpcppBuildExtension: ...")
    assert made.build_extension().__name__ == "DpcppBuildExtension"


def test_memory_is_available_in_a_torch_without_mem_get_info(
    accelerator: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = accelerator("2.5.10+xpu")
    xpu = importlib.import_module("torch").xpu
    monkeypatch.delattr(xpu, "mem_get_info")
    monkeypatch.setattr(made, "total_memory", lambda index=None: 100)
    monkeypatch.setattr(xpu, "memory_allocated", lambda index=None: 30)
    assert made.available_memory() == 70
