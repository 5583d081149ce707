# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where MLU_Accelerator differs from others, and where DeepSpeed's own class was wrong."""

from typing import Any

import pytest
import torch

from accel_mlu import MLU_Accelerator, visible


@pytest.fixture(scope="module")
def mlu() -> MLU_Accelerator:
    return MLU_Accelerator()


def test_names(mlu):
    assert mlu.device_name(1) == "mlu:1"
    assert mlu.communication_backend_name() == "cncl"
    assert (mlu._name, mlu._communication_backend_name) == ("mlu", "cncl")
    assert torch.distributed.Backend.backend_capability["cncl"] == ["mlu"]
    assert mlu.visible_devices_envs() == visible.variables()
    assert mlu.is_triton_supported()


class Profiler:
    """CNPX that records what it is given, or that was not built in."""

    def __init__(self, error: type[Exception] | None = None) -> None:
        self.calls: list[Any] = []
        self.error = error

    def range_push(self, msg: str) -> int:
        self.calls.append(msg)
        if self.error:
            raise self.error("CNPX functions not installed")
        return 0

    def range_pop(self) -> int:
        self.calls.append(None)
        return 0


def test_ranges_reach_the_profiler(mlu, monkeypatch):
    profiler = Profiler()
    monkeypatch.setattr(mlu, "_ranges", profiler)
    mlu.range_push("outer", domain="DeepSpeed", category="forward")
    mlu.range_push("inner")
    mlu.range_pop()
    mlu.range_pop(domain="DeepSpeed")
    assert profiler.calls == ["outer", "inner", None, None]


@pytest.mark.parametrize("error", [RuntimeError, AttributeError])
def test_a_build_without_cnpx_is_asked_once(error, monkeypatch):
    mlu, profiler = MLU_Accelerator(), Profiler(error)
    monkeypatch.setattr(mlu, "_ranges", profiler)
    for _ in range(2):
        mlu.range_push("outer")
        mlu.range_pop()
    assert profiler.calls == ["outer"]


def test_a_release_without_cnpx_has_no_ranges(monkeypatch):
    import torch_mlu

    monkeypatch.delattr(torch_mlu.mlu, "cnpx")
    mlu = MLU_Accelerator()
    mlu.range_push("outer")
    mlu.range_pop()
