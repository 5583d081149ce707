# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Evidence of the native variant: version and build of torch, and whose the render nodes are."""

from collections.abc import Callable
from pathlib import Path

import pytest

from accel_xpu import hardware, probe


@pytest.fixture
def torch_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`torch_of("2.9.0+xpu", xpu="20250101")`: that torch is installed."""

    def install(version: str | None, xpu: str | None = None) -> None:
        monkeypatch.setattr(probe, "distribution_version", {"torch": version}.get)
        monkeypatch.setattr(probe, "torch_build", {"xpu": xpu}.get)

    return install


@pytest.mark.parametrize(
    ("version", "build", "reported"),
    [
        (None, None, "torch is not installed"),
        ("2.7.1+xpu", "20250101", "torch 2.7.1+xpu is installed, >=2.8"),
        ("2.13.0+cpu", None, "built without XPU"),
    ],
)
def test_torch_that_can_not_serve_is_told(
    version: str | None, build: str | None, reported: str, torch_of: Callable[..., None]
) -> None:
    torch_of(version, build)
    evidence = probe.evidence()
    assert not evidence.runtime
    assert reported in evidence.reason


@pytest.mark.parametrize("version", ["2.8.0+xpu", "2.10.0+xpu", "2.13.0.dev20260101+xpu"])
def test_torch_with_xpu_and_a_node_of_intel_s_is_evidence(
    version: str, torch_of: Callable[..., None], render_node: Callable[[str], None]
) -> None:
    torch_of(version, "20250101")
    render_node("0x8086")
    evidence = probe.evidence()
    assert (evidence.runtime, evidence.hardware) == (True, True)
    assert version in evidence.reason


@pytest.mark.parametrize(
    ("vendor", "present", "reported"),
    [
        ("0x8086", True, "renderD128 exists"),
        ("", True, "renderD128 exists"),
        ("0x10de", False, "vendor 0x10de"),
    ],
)
def test_render_nodes_of_other_vendors_are_no_evidence(
    vendor: str, present: bool, reported: str, render_node: Callable[[str], None]
) -> None:
    render_node(vendor)
    presence = hardware.presence()
    assert presence.present is present
    assert reported in presence.reason


def test_machine_without_a_node_has_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCEL_SYSROOT", str(tmp_path))
    assert hardware.presence().present is False


def test_where_there_are_no_device_files_only_the_runtime_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware.sys, "platform", "win32")
    assert hardware.presence().present is None


def test_mask_stands_in_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZE_AFFINITY_MASK", "1.0")
    assert "ZE_AFFINITY_MASK=1.0" in probe.confirm().reason
