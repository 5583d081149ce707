# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The kernels in the wheel, and what a build does without Intel's runtimes."""

import json
import os
import re
from pathlib import Path

import pytest

from accel_ops import step_kernels
from accel_ops.kernel_builders import ARGUMENTS
from accel_xpu.kernels.shim import sizes_of

from . import runtimes, spirv_modules
from .runtimes import FOLDER

#: What torch's wheels for XPU ask of a system (manylinux_2_28).
OLDEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runtimes.checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def wheel() -> dict[str, bytes]:
    return runtimes.files()


def test_build_without_runtimes_has_no_kernels_and_says_so(checkout: Path, tmp_path: Path) -> None:
    done = runtimes.build(checkout, tmp_path, ACCEL_XPU_RUNTIMES=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the wheel has no kernels" in done.stdout + done.stderr
    assert "intel-opencl-rt 2026.0.0 and 2025.3.2" in done.stdout + done.stderr
    assert not runtimes.contents(tmp_path)


def test_build_fails_without_the_kernels_that_are_demanded(checkout: Path, tmp_path: Path) -> None:
    nothing = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    done = runtimes.build(checkout, tmp_path, ACCEL_XPU_RUNTIMES="", ACCEL_XPU_IMAGES="1", **nothing)
    assert done.returncode
    assert "demands kernels, and pip fails" in done.stdout + done.stderr


def test_isolated_build_brings_pip_where_kernels_are_demanded(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hatchling import build as backend

    monkeypatch.chdir(checkout / FOLDER)
    monkeypatch.delenv("ACCEL_XPU_IMAGES", raising=False)
    assert "pip" not in backend.get_requires_for_build_wheel()
    monkeypatch.setenv("ACCEL_XPU_IMAGES", "1")
    assert "pip" in backend.get_requires_for_build_wheel()


def test_modules_are_the_launcher_s_kernels_with_its_arguments(wheel: dict[str, bytes]) -> None:
    table = json.loads(wheel["images.json"])
    assert list(table["modules"]) == sorted(ARGUMENTS)
    assert list(table["shims"]) == ["8", "9"]
    for name, kinds in ARGUMENTS.items():
        found = spirv_modules.kernels(wheel[f"{name}.spv"])
        assert found == {f"__sycl_kernel_{name}": list(sizes_of(kinds))}


def test_modules_have_no_contraction(wheel: dict[str, bytes]) -> None:
    # Of the kernels that add to a product: without the mode a driver may round both at once.
    modules = [wheel[f"{name}.spv"] for name in ARGUMENTS if "asym" in name or name in step_kernels.ARGUMENTS]
    assert len(modules) == 20 + 18
    assert all(spirv_modules.contraction_is_off(module) for module in modules)


@pytest.mark.parametrize("major", ["8", "9"])
def test_shims_ask_for_their_libsycl_without_a_path_and_for_no_newer_system_than_torch(
    wheel: dict[str, bytes], major: str
) -> None:
    content = wheel[f"libaccel_sycl{major}.so"]
    assert set(re.findall(rb"libsycl\.so[.\d]*", content)) == {f"libsycl.so.{major}".encode()}
    assert b"/tmp/" not in content
    for library, version in re.findall(rb"\b(GLIBC|GLIBCXX|CXXABI)_([\d.]+)\0", content):
        assert tuple(map(int, version.split(b"."))) <= OLDEST[library.decode()], (library, version)
