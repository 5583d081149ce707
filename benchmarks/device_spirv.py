# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""accel-xpu's SPIR-V on Intel's OpenCL for CPUs, on tensors of the host, in a process that begins with that runtime."""

import ctypes
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from accel_core.op_builder.native import find_compiler
from accel_ops.kernel_builders import ARGUMENTS, packed_arguments
from accel_xpu.kernels import packaged
from accel_xpu.kernels.shim import Shim, sizes_of

_TESTS = Path(__file__).parents[1] / "packages/accel-xpu/tests"
_FILES, _RUNTIME = "BENCHMARK_SPIRV_FILES", "BENCHMARK_SPIRV_RUNTIME"


def lack() -> str:
    """Return why SPIR-V is not measured in this process; empty if it is."""
    if _FILES in os.environ:
        return ""
    return "no folder of intel-sycl-rt and intel-opencl-rt in ACCEL_XPU_RUNTIMES (`tox run -e xpu-kernels` makes some)"


def started_again() -> int | None:
    """Run the same command in a process with the newest runtime, and return its status; None where there is none."""
    if _FILES in os.environ:
        return None
    runtimes = _runtimes()
    installed = runtimes.installed()
    if any(release not in installed for release in runtimes.NEEDED):
        return None
    runtime = max(installed.items())[1]
    with tempfile.TemporaryDirectory(prefix="accel-spirv-") as folder:
        for name, content in runtimes.files().items():
            Path(folder, name).write_bytes(content)
        added = runtimes.hook().environment(runtime, Path(folder)) | {_FILES: folder, _RUNTIME: str(runtime)}
        command = [sys.executable, *sys.orig_argv[1:]]
        return subprocess.run(command, env=os.environ | added, check=False).returncode


def release() -> str:
    """Return the release of this process's runtime."""
    found: str = _runtimes().hook().release_of(Path(os.environ[_RUNTIME]))
    return found


class Kernels:
    """The packaged kernels on a queue of the CPU; each launch is waited for."""

    def __init__(self) -> None:
        packaged.FOLDER = Path(os.environ[_FILES])
        self._library = _queue_library(Path(os.environ[_RUNTIME]), packaged.FOLDER)
        self._queue = self._library.test_queue()
        self._shim, self._modules = Shim(), packaged.modules()
        self._kernels: dict[str, int] = {}

    def launch(self, name: str, blocks: int, threads: int, arguments: tuple[Any, ...]) -> None:
        """Run a kernel on tensors of the host."""
        if name not in self._kernels:
            module = self._shim.load(self._queue, self._modules[name])
            self._kernels[name] = self._shim.kernel(module, name)
        pointers, _kept = packed_arguments(name, arguments)
        sizes = sizes_of(ARGUMENTS[name])
        self._shim.launch(self._queue, self._kernels[name], blocks, threads, pointers, sizes)
        self._library.test_wait(self._queue)


def _queue_library(runtime: Path, folder: Path) -> Any:
    target = folder / "queue.so"
    command = [
        *(find_compiler() or ["c++"]), "-std=c++17", "-w", "-fPIC", "-shared",
        "-DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING", "-isystem", str(runtime / "include"), f"-L{runtime / 'lib'}",
        str(_TESTS / "spirv/queue.cpp"), "-o", str(target), "-lsycl", "-Wl,--allow-shlib-undefined",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    library = ctypes.CDLL(str(target))
    library.test_queue.restype = ctypes.c_void_p
    library.test_wait.argtypes = [ctypes.c_void_p]
    return library


def _runtimes() -> Any:
    """The module of accel-xpu's tests that finds runtimes and builds the packaged files."""
    spec = importlib.util.spec_from_file_location("accel_xpu_runtimes", _TESTS / "runtimes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
