# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a probe sees without imports: versions as versions, device files, the build of torch."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from accel_core import vendor


@pytest.mark.parametrize(
    ("version", "specifier", "inside"),
    [
        ("2.10.0", ">=2.6", True),  # as text it would be smaller
        ("2.5.10+xpu", "<2.6", True),
        ("2.8.0.dev20250601", ">=2.5,<2.9", True),
        ("2.13.0+cpu", ">=2.1,<2.13", False),
        ("nightly", ">=2.1", False),
    ],
)
def test_versions_are_compared_as_versions(version: str, specifier: str, inside: bool) -> None:
    assert vendor.in_range(version, specifier) is inside


def test_device_files_are_those_of_the_recorded_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dev").mkdir()
    nodes = [tmp_path / "dev" / name for name in ("davinci0", "davinci1")]
    for node in (*nodes, tmp_path / "dev" / "davinci_manager"):
        node.touch()
    monkeypatch.setenv("ACCEL_SYSROOT", str(tmp_path))
    assert vendor.device_files(["dev/davinci[0-9]*"]) == nodes


BUILD = {"cuda": "12.8", "hip": None}


def test_build_of_torch_is_read_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise AssertionError('imported')")
    (tmp_path / "torch" / "version.py").write_text("cuda: str | None = '12.8'\nhip = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert {field: vendor.torch_build(field) for field in BUILD} == BUILD
    assert vendor.torch_build("xpu") is None


def test_build_of_an_imported_torch_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(**BUILD)))
    assert {field: vendor.torch_build(field) for field in BUILD} == BUILD
    assert vendor.torch_build("xpu") is None


def test_build_of_torch_is_that_of_the_recorded_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text("xpu = '20250302'\n")
    monkeypatch.setenv("ACCEL_SYSROOT", str(tmp_path))
    assert vendor.torch_build("xpu") == "20250302"
    assert vendor.torch_build("cuda") is None
