# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which device of NVML's stands behind an index: ordinals, UUIDs, MIG instances, empty and wrong masks."""

import sys
from typing import Any

import pytest

from accel_cuda import nvml, visible


@pytest.mark.parametrize(
    ("value", "listed"),
    [
        ("0,2", [0, 2]),
        (" 1 , 0", [1, 0]),
        ("GPU-1111,GPU-3", ["GPU-1111", "GPU-3"]),
        ("MIG-4444,0", ["MIG-4444", 0]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,-1,0", [1]),
        ("0,x,1", [0]),
        ("1,1", []),
    ],
)
def test_mask_is_read_as_the_runtime_reads_it(value: str, listed: list[int | str]) -> None:
    assert visible.entries(value) == listed


@pytest.mark.parametrize(
    ("mask", "index", "free"),
    [
        (None, 0, 1000),
        (None, 2, 3000),
        ("2,0", 0, 3000),
        ("GPU-11112222-bbbb", 0, 2000),
        ("GPU-33,GPU-11112", 1, 2000),
        ("MIG-44444444-dddd", 0, 400),
        ("", 0, None),
        ("1", 1, None),
        ("GPU-99999999", 0, None),
        ("GPU-1111", 0, None),  # it begins two UUIDs
        ("7", 0, None),
    ],
)
def test_free_memory_is_that_of_the_visible_device(
    mask: str | None, index: int, free: int | None, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mask is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    assert nvml.free_memory(index) == free


@pytest.mark.parametrize("installed", [True, False], ids=["no driver", "no package"])
def test_library_that_does_not_work_reports_nothing(
    installed: bool, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.works = False
    if not installed:
        monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.free_memory(0) is None
