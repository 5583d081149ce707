# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A management library of our making, and a shell that limits no device."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from accel_cuda import nvml

#: The devices of the machine by UUID: free bytes, compute capability. The last is a MIG instance.
DEVICES = {
    "GPU-11111111-aaaa": (1000, (9, 0)),
    "GPU-11112222-bbbb": (2000, (8, 6)),
    "GPU-33333333-cccc": (3000, (7, 0)),
    "MIG-44444444-dddd": (400, (9, 0)),
}


class NVMLError(Exception):
    """The library's exception."""


class Library:
    """The functions of pynvml that are asked; a handle is the UUID."""

    NVMLError = NVMLError

    def __init__(self) -> None:
        self.whole = [uuid for uuid in DEVICES if uuid.startswith("GPU-")]
        self.works = True

    def nvmlInit(self) -> None:
        if not self.works:
            raise NVMLError("driver not loaded")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.whole)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index >= len(self.whole):
            raise NVMLError("invalid argument")
        return self.whole[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in DEVICES:
            raise NVMLError("not found")
        return uuid

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(free=DEVICES[handle][0])

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:
        return DEVICES[handle][1]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """nvidia-ml-py on a machine with three GPUs and a MIG instance."""
    found = Library()
    monkeypatch.setitem(sys.modules, "pynvml", found)  # type: ignore[arg-type]
    nvml._library.cache_clear()
    yield found
    nvml._library.cache_clear()


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The surrounding shell chooses no device and no type."""
    for name in ("CUDA_VISIBLE_DEVICES", "DS_ALLOW_DEPRECATED_FP16"):
        monkeypatch.delenv(name, raising=False)
