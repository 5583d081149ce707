# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A simulated xpu in a process that holds a real libsycl, whose device is the CPU: its memory is the tensors'."""

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_core.op_builder.native import find_compiler
from accel_xpu.kernels import packaged, shim

RUNTIME = Path(os.environ.get("ACCEL_XPU_RUNTIME", ""))
FLAGS = ("-std=c++17", "-w", "-fPIC", "-shared", "-DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING")


class Queue:
    """A queue of the CPU.

    address: as torch gives it. launches: how many kernels were started.
    """

    def __init__(self, library: Any) -> None:
        library.test_queue.restype = ctypes.c_void_p
        library.test_wait.argtypes = [ctypes.c_void_p]
        self._library, self.address, self.launches = library, library.test_queue(), 0
        assert self.address, "no device: is intel-opencl-rt installed?"

    def wait(self) -> None:
        self._library.test_wait(self.address)


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Queue:
    """The queue; from now on this process has libsycl."""
    library = tmp_path_factory.mktemp("queue") / "queue.so"
    folders = ["-isystem", str(RUNTIME / "include"), f"-L{RUNTIME / 'lib'}"]
    source = str(Path(__file__).with_name("queue.cpp"))
    libraries = ["-lsycl", "-Wl,--allow-shlib-undefined"]
    command = [*find_compiler(), *FLAGS, *folders, source, "-o", str(library), *libraries]
    subprocess.run(command, check=True, capture_output=True)
    return Queue(ctypes.CDLL(str(library)))


@pytest.fixture
def queue(started: Queue, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """The queue as torch's current one, and an install with kernels. Each launch is waited for: torch does not."""
    start = shim.Shim.launch

    def launch(self: shim.Shim, *arguments: Any) -> None:
        start(self, *arguments)
        started.wait()
        started.launches += 1

    monkeypatch.setattr(packaged, "FOLDER", Path(os.environ["ACCEL_XPU_FILES"]))
    monkeypatch.setattr(shim.Shim, "launch", launch)
    monkeypatch.setattr(torch._C, "_xpu_getCurrentRawStream", lambda device: started.address, raising=False)
    started.launches = 0
    return started
