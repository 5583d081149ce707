# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The kernels: in the wheel, through the real libsycl, and what the quantizer falls back from without a runtime."""

import hashlib
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import accel_sim
from accel_core import processes
from accel_core.op_builder.native import find_compiler
from accel_ops import routes
from accel_ops.device.driver_kernels import KernelNotStarted, KernelsUnusable
from accel_ops.optimizers import step_kernels
from accel_ops.quantizers.quantizer import QuantizerFunctions
from accel_ops.routes import ARGUMENTS
from accel_xpu.kernels import loading, packaged, shim
from accel_xpu.op_builder.fused import FusedLionBuilder
from accel_xpu.op_builder.quantizer import QuantizerBuilder
from shared import kernel_wheels

from . import runtimes

# Numbers of instructions and of an execution mode, from the specification.
_ENTRY_POINT, _EXECUTION_MODE = 15, 16
_CONTRACTION_OFF = 31


def contraction_is_off(module: bytes) -> bool:
    """Return whether all kernels say that a * b + c is rounded twice."""
    modes = [words[0] for number, words in _instructions(module) if number == _EXECUTION_MODE
             and words[1] == _CONTRACTION_OFF]  # fmt: skip
    return set(modes) == {words[1] for number, words in _instructions(module) if number == _ENTRY_POINT}


def _instructions(module: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    words = struct.unpack(f"<{len(module) // 4}I", module)
    place = 5
    while place < len(words):
        length, number = words[place] >> 16, words[place] & 0xFFFF
        yield number, words[place + 1 : place + length]
        place += length


#: What torch's wheels for XPU ask of a system (manylinux_2_28).
OLDEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kernel_wheels.copied(runtimes.PACKAGE, tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def wheel() -> dict[str, bytes]:
    return runtimes.files()


def test_build_without_runtimes_has_no_kernels_and_says_so(checkout, tmp_path):
    done = kernel_wheels.build(checkout, tmp_path, ACCEL_XPU_RUNTIMES=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the wheel has no kernels" in done.stdout + done.stderr
    assert "intel-opencl-rt 2026.0.0 and 2025.3.2" in done.stdout + done.stderr
    assert not kernel_wheels.contents(tmp_path)


def test_build_fails_without_the_kernels_that_are_demanded(checkout, tmp_path):
    nothing = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    done = kernel_wheels.build(checkout, tmp_path, ACCEL_XPU_RUNTIMES="", ACCEL_XPU_IMAGES="1", **nothing)
    assert done.returncode
    assert "demands kernels, and pip fails" in done.stdout + done.stderr


def test_isolated_build_brings_pip_where_kernels_are_demanded(checkout, monkeypatch):
    from hatchling import build as backend

    monkeypatch.chdir(checkout)
    monkeypatch.delenv("ACCEL_XPU_IMAGES", raising=False)
    assert "pip" not in backend.get_requires_for_build_wheel()
    monkeypatch.setenv("ACCEL_XPU_IMAGES", "1")
    assert "pip" in backend.get_requires_for_build_wheel()


def test_modules_have_no_contraction(wheel):
    # Of the kernels that add to a product: without the mode a driver may round both at once.
    modules = [wheel[f"{name}.spv"] for name in ARGUMENTS if "asym" in name or name in step_kernels.ARGUMENTS]
    assert len(modules) == 12 + 18
    assert all(contraction_is_off(module) for module in modules)


@pytest.mark.parametrize("major", ["8", "9"])
def test_shims_ask_for_their_libsycl_without_a_path_and_for_no_newer_system_than_torch(wheel, major):
    content = wheel[f"libaccel_sycl{major}.so"]
    assert set(re.findall(rb"libsycl\.so[.\d]*", content)) == {f"libsycl.so.{major}".encode()}
    assert b"/tmp/" not in content
    for library, version in re.findall(rb"\b(GLIBC|GLIBCXX|CXXABI)_([\d.]+)\0", content):
        assert tuple(map(int, version.split(b"."))) <= OLDEST[library.decode()], (library, version)


# --- through the real libsycl on Intel's OpenCL for CPUs, on each runtime that there is


FOUND = runtimes.installed()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packaged files, as the build of the wheel makes them."""
    folder = tmp_path_factory.mktemp("images")
    for name, content in runtimes.files().items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("release", FOUND or ["none"])
def test_kernels_on_the_cpu(release, images, tmp_path):
    variables = runtimes.hook().environment(FOUND[release], tmp_path)
    variables |= {"ACCEL_XPU_RUNTIME": str(FOUND[release]), "ACCEL_XPU_FILES": str(images)}
    base = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        *["-m", "pytest", "-q", "-x", "-p", "no:xdist"],
        str(Path(__file__).with_name("spirv")),
    ]
    done = processes.run(command, 1800, env=accel_sim.environment("xpu", base=base))
    assert not done.returncode, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


# --- what the quantizer falls back from, with its reasons: no Intel runtime is needed here


MODULE = 0x07230203.to_bytes(4, "little") + bytes(16)
#: A shim over nothing: a driver that refuses whatever it is given.
REFUSING = """
extern "C" {
const char* accel_sycl_problem() { return "the driver\\n refuses"; }
void* accel_sycl_load(void*, const void*, unsigned long) { return nullptr; }
void* accel_sycl_kernel(void*, const char*) { return nullptr; }
int accel_sycl_launch(void*, void*, unsigned, unsigned, const void* const*, const char*, unsigned) { return 1; }
}
"""


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.cpp").write_text(REFUSING)
    command = [*find_compiler(), "-shared", "-fPIC", str(folder / "shim.cpp"), "-o", str(folder / "shim.so")]
    subprocess.run(command, check=True, capture_output=True)
    return (folder / "shim.so").read_bytes()


def write(folder: Path, name: str, content: bytes) -> dict[str, str]:
    (folder / name).write_bytes(content)
    return {"file": name, "sha256": hashlib.sha256(content).hexdigest()}


def install(folder: Path, library: bytes, module: bytes = MODULE, leave_out: str = "") -> None:
    """Write files as the build of the wheel does."""
    modules = {name: write(folder, f"{name}.spv", module) for name in ARGUMENTS if name != leave_out}
    shims = {major: write(folder, f"libaccel_sycl{major}.so", library) for major in ("8", "9")}
    (folder / packaged.TABLE).write_text(json.dumps({"modules": modules, "shims": shims}))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusing: bytes) -> Path:
    """A torch for XPU with libsycl.so.9, a device, and a whole install. Returns the folder of the packaged files."""
    folder = tmp_path / "images"
    folder.mkdir()
    install(folder, refusing)
    monkeypatch.setattr(packaged, "FOLDER", folder)
    monkeypatch.setattr(shim, "MAPS", tmp_path / "maps")
    hold("9.0.0", maps=tmp_path / "maps")
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    monkeypatch.setattr(torch.xpu, "current_device", lambda: 0)
    return folder


def hold(*versions: str, maps: Path | None = None) -> None:
    """Write the files that a process with these versions of libsycl has mapped."""
    lines = [f"7f00-7f01 r-xp 00000000 08:01 42  /venv/lib/libsycl.so.{version}" for version in versions]
    (maps or shim.MAPS).write_text("\n".join(["7e00-7e01 r-xp 00000000 08:01 7  /lib/libc.so.6", *lines, ""]))


def reason(kind: Any = QuantizerBuilder) -> str:
    builder = kind()
    op = builder.load()
    assert kind is not QuantizerBuilder or type(op) is QuantizerFunctions
    return str(builder.reason)


def test_machine_without_a_device_takes_plain_torch():
    assert "if they work when first loaded" in QuantizerBuilder().reason
    assert reason() == "plain torch: no device"


@pytest.mark.parametrize(
    ("versions", "reported"),
    [
        ((), "this process has no libsycl: this torch is not built for XPU"),
        (("7.1.0",), "no shim for libsycl.so.7: there are those for 8, 9"),
        (("10",), "no shim for libsycl.so.10: there are those for 8, 9"),
        (("8.0.0", "9.0.0"), "this process has libsycl.so.8 and libsycl.so.9"),
    ],
    ids=["none", "older", "newer", "two"],
)
def test_libsycl_of_the_process_that_no_shim_is_for_gives_way_to_plain_torch(machine, versions, reported):
    hold(*versions)
    assert reason().startswith(f"plain torch: {reported}")


def truncated_module(folder: Path) -> None:
    path = folder / "accel_reduce_4_sym.spv"
    path.write_bytes(path.read_bytes()[:8])


def truncated_shim(folder: Path) -> None:
    path = folder / "libaccel_sycl9.so"
    path.write_bytes(path.read_bytes()[:5000])


def again(**changes: Any) -> Callable[[Path], None]:
    """Write the files once more, of another build."""
    return lambda folder: install(folder, (folder / "libaccel_sycl9.so").read_bytes(), **changes)


FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a truncated module": (truncated_module, "the module of accel_reduce_4_sym is damaged or of another build"),
    "a foreign module": (again(module=b"\x7fELF" + bytes(16)), "_sym is not SPIR-V"),
    "no module of a kernel": (
        again(leave_out="accel_reduce_8_asym"), "1 kernels are missing, as accel_reduce_8_asym"
    ),
    "a truncated shim": (truncated_shim, "the shim for libsycl.so.9 is damaged or of another build"),
    "a shim that is no library": (
        lambda folder: install(folder, b"\x7fELF" + bytes(60)), "the shim libaccel_sycl9.so does not load"
    ),
    "no table": (lambda folder: (folder / packaged.TABLE).unlink(), "no SPIR-V in this install"),
    "a damaged table": (
        lambda folder: (folder / packaged.TABLE).write_text("{") and None, "the table of SPIR-V cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_install_that_cannot_be_used_gives_way_to_plain_torch(fault, machine):
    damage, reported = FAULTS[fault]
    damage(machine)
    found = reason()
    assert found.startswith("plain torch: ")
    assert reported in found


def test_driver_that_refuses_a_module_is_a_reason(machine):
    with pytest.raises(KernelsUnusable, match="libsycl does not load a module of SPIR-V: the driver refuses"):
        shim.Shim().load(1, MODULE)
    with pytest.raises(KernelsUnusable, match="libsycl does not load accel_a: the driver refuses"):
        shim.Shim().kernel(1, "accel_a")
    with pytest.raises(KernelsUnusable, match="libsycl does not start a kernel: the driver refuses"):
        shim.Shim().launch(1, 1, 1, 1, None, b"")


def test_torch_without_queues_is_an_error(machine):
    kernels = loading.LoadedKernels(shim.Shim(), packaged.modules())
    arguments = (torch.empty(8), torch.empty(8), torch.empty(1), 8, 8)
    with pytest.raises(KernelNotStarted, match="torch has no queue") as caught:
        kernels.launch("accel_dequantize_f32_8_sym", 1, 64, arguments)
    assert "zero_quantized_weights" in caught.value.do


@pytest.mark.parametrize("builder", [QuantizerBuilder, FusedLionBuilder])
def test_kernels_that_do_not_work_are_tried_once_a_process(builder, machine):
    (machine / packaged.TABLE).rename(machine / "gone")
    reported = reason(builder)
    assert reported == "plain torch: no SPIR-V in this install"
    (machine / "gone").rename(machine / packaged.TABLE)
    (machine / "libaccel_sycl9.so").unlink()
    assert reason(builder) == reported
    routes.tried.cache_clear()
    assert reason(builder).startswith("plain torch: the shim for libsycl.so.9 cannot be read")


def test_device_that_torch_cannot_name_gives_way_to_plain_torch(machine, monkeypatch):
    def lost():
        raise RuntimeError("the device is lost\nat 0x1")

    monkeypatch.setattr(torch.xpu, "current_device", lost)
    assert reason() == "plain torch: the device is lost"
