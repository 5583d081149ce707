# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci import check_names
from ci.stubs import surfaces
from ci.tests.repository import HEADER, Repository

TOY = "packages/accel-toy/src/accel_toy"
NAMES = {"torch.ops.npu.npu_swiglu": {"kind": "function"}, "torch_npu.contrib.fast": {"kind": "function"}}


@pytest.fixture
def toy(repository: Repository) -> Repository:
    """The repository with a vendor package, and a surface with one operator and one module."""
    repository.package("accel-toy", vendor="toy")
    for runtime in surfaces.RUNTIMES:
        for file in runtime.files:
            names = NAMES if file == "npu.json" else {}
            repository.write(f"shared/surfaces/{file}", json.dumps({"module": "x", "names": names}))
    return repository


def faults(repository: Repository, line: str, file: str = f"{TOY}/x.py") -> list[str]:
    repository.write(file, f"{HEADER}{line}\n")
    return [f"{fault.line}: {fault.found}" for fault in check_names.check(repository.root)]


@pytest.mark.parametrize(
    "line",
    [
        "torch.ops.npu.npu_swiglu(x)",
        "torch.ops.npu.npu_swiglu.out(x)",
        "torch.ops.c10d.allreduce_",
        "torch.ops.npu",
        "FUSED_OP = 'npu.npu_swiglu'",
        "FUSED = {'gated': ('npu.npu_swiglu', gated)}",
        "name = 'other.npu_swiglo'",
        "file = 'npu.npu_swiglu.txt'",
        "importlib.import_module('torch_npu.contrib')",
        "import_module('torch_npu')",
        "import_module('numpy.nonsense')",
        "import_module(name)",
    ],
)
def test_a_name_that_exists_or_is_no_vendor_s_passes(toy: Repository, line: str) -> None:
    assert faults(toy, line) == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("torch.ops.npu.npu_swiglo(x)", "torch.ops.npu.npu_swiglo"),
        ("torch.ops.npu.npu_swiglo.out(x)", "torch.ops.npu.npu_swiglo"),
        ("torch.ops.nqu.npu_swiglu(x)", "torch.ops.nqu.npu_swiglu"),
        ("FUSED_OP = 'npu.npu_swiglo'", "torch.ops.npu.npu_swiglo"),
        ("FUSED = {'gated': ('npu.npu_swiglo', gated)}", "torch.ops.npu.npu_swiglo"),
        ("importlib.import_module('torch_npu.contrip')", "torch_npu.contrip"),
    ],
)
def test_a_name_that_is_missing_is_found(toy: Repository, line: str, name: str) -> None:
    assert faults(toy, line) == [f"3: no surface has {name}"]


def test_packages_that_are_no_vendor_s_are_not_looked_at(toy: Repository) -> None:
    core = "packages/accel-core/src/accel_core/x.py"
    assert faults(toy, "FUSED_OP = 'npu.nonsense'", core) == []


def test_faults_end_the_program_with_1(toy: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_names.main([], toy.root) == 0
    assert faults(toy, "torch.ops.npu.nonsense")
    assert check_names.main([], toy.root) == 1
    expected = f"{TOY}/x.py:3: a vendor's name that is used exists: no surface has torch.ops.npu.nonsense"
    assert expected in capsys.readouterr().out


def test_without_surfaces_nothing_passes(repository: Repository) -> None:
    assert check_names.main([], repository.root) == 2


def test_this_repository_passes() -> None:
    assert [str(fault) for fault in check_names.check(Path(__file__).parents[2])] == []
