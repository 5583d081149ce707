# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the quantizer falls back from, with its reasons: no Intel runtime is needed here. tests/spirv has one."""

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_core.op_builder.native import find_compiler
from accel_ops import fused_optimizers
from accel_ops.device_kernels import KernelNotStarted, KernelsUnusable
from accel_ops.kernel_builders import ARGUMENTS
from accel_ops.quantizer import QuantizerFunctions
from accel_xpu.kernels import loading, packaged, shim
from accel_xpu.op_builder.fused import FusedAdamBuilder, FusedLionBuilder
from accel_xpu.op_builder.quantizer import QuantizerBuilder

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


def reason() -> str:
    builder = QuantizerBuilder()
    op = builder.load()
    assert type(op) is QuantizerFunctions
    return str(builder.reason)


def test_machine_without_a_device_takes_plain_torch() -> None:
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
def test_libsycl_of_the_process_that_no_shim_is_for_gives_way_to_plain_torch(
    machine: Path, versions: tuple[str, ...], reported: str
) -> None:
    hold(*versions)
    assert reason().startswith(f"plain torch: {reported}")


@pytest.mark.parametrize("version", ["8.0.0", "8", "9.0.0", "9.0.0 (deleted)"])
def test_shim_is_chosen_by_what_the_process_has(machine: Path, version: str) -> None:
    hold(version)
    assert shim.held() == version[0]


def truncated_module(folder: Path) -> None:
    path = folder / "accel_reduce_4_sym.spv"
    path.write_bytes(path.read_bytes()[:8])


def truncated_shim(folder: Path) -> None:
    path = folder / "libaccel_sycl9.so"
    path.write_bytes(path.read_bytes()[:5000])


def table_of(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / packaged.TABLE).write_text(text) and None


def again(**changes: Any) -> Callable[[Path], None]:
    """Write the files once more, of another build."""
    return lambda folder: install(folder, (folder / "libaccel_sycl9.so").read_bytes(), **changes)


FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a truncated module": (truncated_module, "the module of accel_reduce_4_sym is damaged or of another build"),
    "a foreign module": (again(module=b"\x7fELF" + bytes(16)), "_sym is not SPIR-V"),
    "a module of an odd size": (again(module=MODULE + b"\0"), "_sym is not SPIR-V"),
    "no module of a kernel": (
        again(leave_out="accel_reduce_8_asym"), "1 kernels are missing, as accel_reduce_8_asym"
    ),
    "a module that is gone": (
        lambda folder: (folder / "accel_reduce_4_sym.spv").unlink(), "the module of accel_reduce_4_sym cannot be read"
    ),
    "a truncated shim": (truncated_shim, "the shim for libsycl.so.9 is damaged or of another build"),
    "a shim that is no library": (
        lambda folder: install(folder, b"\x7fELF" + bytes(60)), "the shim libaccel_sycl9.so does not load"
    ),
    "a shim that is gone": (
        lambda folder: (folder / "libaccel_sycl9.so").unlink(), "the shim for libsycl.so.9 cannot be read"
    ),
    "no table": (lambda folder: (folder / packaged.TABLE).unlink(), "no SPIR-V in this install"),
    "a damaged table": (table_of("{"), "the table of SPIR-V cannot be read"),
    "a table of something else": (table_of("[1]"), "the table of SPIR-V cannot be read"),
    "a table without hashes": (
        table_of('{"shims": {"9": {"file": "libaccel_sycl9.so"}}}'), "the shim for libsycl.so.9 is damaged"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_install_that_cannot_be_used_gives_way_to_plain_torch(fault: str, machine: Path) -> None:
    damage, reported = FAULTS[fault]
    damage(machine)
    found = reason()
    assert found.startswith("plain torch: ")
    assert reported in found


def test_driver_that_refuses_a_module_is_a_reason(machine: Path) -> None:
    with pytest.raises(KernelsUnusable, match="libsycl does not load a module of SPIR-V: the driver refuses"):
        shim.Shim().load(1, MODULE)
    with pytest.raises(KernelsUnusable, match="libsycl does not load accel_a: the driver refuses"):
        shim.Shim().kernel(1, "accel_a")
    with pytest.raises(KernelsUnusable, match="libsycl does not start a kernel: the driver refuses"):
        shim.Shim().launch(1, 1, 1, 1, None, b"")


def test_torch_without_queues_is_an_error_in_four_parts(machine: Path) -> None:
    kernels = loading.LoadedKernels(shim.Shim(), packaged.modules())
    arguments = (torch.empty(8), torch.empty(8), torch.empty(1), 8, 8)
    with pytest.raises(KernelNotStarted, match="torch has no queue") as caught:
        kernels.launch("accel_dequantize_f32_8_sym", 1, 64, arguments)
    assert "zero_quantized_weights" in caught.value.do


@pytest.mark.parametrize("builder", [QuantizerBuilder, FusedLionBuilder])
def test_kernels_that_do_not_work_are_tried_once_a_process(builder: Any, machine: Path) -> None:
    def reason() -> str:
        made = builder()
        made.load()
        return str(made.reason)

    (machine / packaged.TABLE).rename(machine / "gone")
    reported = reason()
    assert reported == "plain torch: no SPIR-V in this install"
    (machine / "gone").rename(machine / packaged.TABLE)
    (machine / "libaccel_sycl9.so").unlink()
    assert reason() == reported
    loading.tried.forget()
    assert reason().startswith("plain torch: the shim for libsycl.so.9 cannot be read")


def test_device_that_torch_cannot_name_gives_way_to_plain_torch(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> int:
        raise RuntimeError("the device is lost\nat 0x1")

    monkeypatch.setattr(torch.xpu, "current_device", lost)
    assert reason() == "plain torch: the device is lost"


def test_adam_without_kernels_is_plain_torch_for_mixed_types_with_the_reason(machine: Path) -> None:
    (machine / packaged.TABLE).unlink()
    builder = FusedAdamBuilder()
    assert builder.fallback_step() == (
        fused_optimizers.adam_step,
        "plain torch (no kernels: no SPIR-V in this install)",
    )
