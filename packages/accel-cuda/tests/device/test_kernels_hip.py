# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kernels on ROCm, from hipRTC to result, on the emulated HIP runtime of accel-sim."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accel_cuda import CUDA_Accelerator
from accel_cuda.kernels import compiled_here, hip, loading
from accel_ops import fused_optimizers
from accel_ops.quantizer import QuantizerFunctions
from accel_sim.driver import emulated

from .conftest import driver_build

pytestmark = pytest.mark.skipif("ACCEL_SIM" not in os.environ, reason="not run: a real driver is here")
TARGET = "gfx90a:sramecc+:xnack-"
PLAIN = QuantizerFunctions()
FLAG = torch.zeros(1, dtype=torch.int32)


@pytest.fixture
def rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two MI250 with ROCm's torch, and an empty cache. Returns the emulated runtime."""
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName=TARGET)
    )
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path))
    runtime = emulated.load(emulated.LIBHIP, *driver_build())
    runtime.accel_driver_set(torch.cuda.device_count(), 0, 0)
    runtime.accel_driver_set_architecture(TARGET.encode())
    loading._architecture.cache_clear()
    yield runtime
    loading._architecture.cache_clear()


def load(name: str = "QuantizerBuilder") -> tuple[Any, str]:
    builder = CUDA_Accelerator().create_op_builder(name)
    assert builder is not None
    op = builder.load()
    builder.prepare()
    return op, builder.reason


def quantize_on_each_device(op: Any, rocm: Any) -> None:
    values = torch.randn(4, 40)
    for index in range(torch.cuda.device_count()):
        for bits, kind in ((8, 0), (4, 1)):
            found = op.quantize(values.to(f"cuda:{index}"), 4, bits, kind)
            assert rocm.accel_driver_last_device() == index
            for ours, theirs in zip(found, PLAIN.quantize(values, 4, bits, kind), strict=True):
                assert torch.equal(ours.cpu(), theirs)


def test_quantizer_is_compiled_here_once(rocm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    op, reason = load()
    assert reason == f"compiled here: {TARGET}"
    before = rocm.accel_driver_launches()
    quantize_on_each_device(op, rocm)
    assert rocm.accel_driver_launches() - before == 2 * torch.cuda.device_count()
    monkeypatch.setattr(compiled_here.rtc, "compiled", None)
    loading.tried.forget()
    assert load()[1] == reason


def test_threads_begin_with_the_first_device_and_their_device_is_restored(rocm: Any) -> None:
    op, _ = load()
    last, found = torch.cuda.device_count() - 1, []
    runtime = hip.Runtime()

    def quantize() -> None:
        quantize_on_each_device(op, rocm)
        with runtime.current(last):
            quantize_on_each_device(op, rocm)
            found.append(current(runtime))
        found.append(current(runtime))

    thread = threading.Thread(target=quantize)
    thread.start()
    thread.join()
    assert found == [last, 0]


def current(runtime: hip.Runtime) -> int:
    device = hip.ctypes.c_int()
    runtime.call("hipGetDevice", hip.ctypes.byref(device))
    return device.value


def test_kernels_run_on_the_current_stream(rocm: Any) -> None:
    op, _ = load()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        op.quantize(torch.ones(2, 8, device="cuda"), 2, 8, 0)
        assert (rocm.accel_driver_last_stream() or 0) == stream.cuda_stream


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16], ids=str)
def test_optimizers_are_those_of_float64(kind: torch.dtype, rocm: Any) -> None:
    fused_adam, reported = load("FusedAdamBuilder")
    assert f"; kernels (compiled here: {TARGET}) and plain torch for mixed types" in reported
    fused_lion, reported = load("FusedLionBuilder")
    assert reported == f"compiled here: {TARGET}"
    before = rocm.accel_driver_launches()
    for states in (2, 1):
        start = [[torch.rand(5000).to(dtype)] for dtype in (kind, kind, *[torch.float32] * states)]
        lists = [[tensor.cuda() for tensor in column] for column in start]
        wanted = [[tensor.double() for tensor in column] for column in start]
        for op, given in ((fused_adam if states == 2 else fused_lion, lists), (fused_optimizers, wanted)):
            if states == 2:
                op.multi_tensor_adam(2048, FLAG, given, 0.01, 0.9, 0.99, 1e-6, 3, 1, 1, 0.1)
            else:
                op.multi_tensor_lion(2048, FLAG, given, 0.01, 0.9, 0.99, 3, 0.1)
        for ours, theirs in zip(lists[1:], wanted[1:], strict=True):
            unit = 2 * torch.finfo(ours[0].dtype).eps
            torch.testing.assert_close(ours[0].cpu().double(), theirs[0], rtol=unit, atol=unit)
    assert rocm.accel_driver_launches() - before == 2


def no_runtime(monkeypatch: pytest.MonkeyPatch, rocm: Any) -> None:
    monkeypatch.setattr(hip, "RUNTIMES", ("libamdhip64-of-nobody.so",))


def other_device(monkeypatch: pytest.MonkeyPatch, rocm: Any) -> None:
    rocm.accel_driver_set_architecture(b"gfx942")


def other_target(monkeypatch: pytest.MonkeyPatch, rocm: Any) -> None:
    properties = SimpleNamespace(gcnArchName="gfx000")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)


def wrong_numbers(monkeypatch: pytest.MonkeyPatch, rocm: Any) -> None:
    monkeypatch.setattr(hip.Runtime, "launch", lambda *arguments: None)


def no_source(monkeypatch: pytest.MonkeyPatch, rocm: Any) -> None:
    monkeypatch.setattr(compiled_here, "_HEADERS", Path("nowhere"))


def contracted(monkeypatch: pytest.MonkeyPatch, rocm: Any) -> None:
    monkeypatch.setattr(compiled_here.rtc, "HIPRTC", compiled_here.rtc.HIPRTC._replace(options=()))


FAULTS = {
    no_runtime: "no libamdhip64.so",
    other_device: "hipModuleLoadData returns hipErrorNoBinaryForGpu (209)",
    other_target: "hiprtc makes no image for gfx000: error: unknown target 'gfx000'",
    contracted: f"hiprtc makes no image for {TARGET}: error: a * b + c would be contracted",
    wrong_numbers: "a trial of 8 bits on cuda:0 is not what plain torch computes",
    no_source: "no source of kernels in this install",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_what_cannot_be_used_gives_way_to_plain_torch(
    fault: Any, rocm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch, rocm)
    op, reason = load()
    assert reason.startswith("plain torch: ")
    assert FAULTS[fault] in reason
    values = torch.randn(2, 8)
    found, wanted = op.quantize(values.cuda(), 2, 8, 0), PLAIN.quantize(values, 2, 8, 0)
    assert torch.equal(found[0].cpu(), wanted[0])


def test_libraries_that_the_process_holds_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 08:01 12 /torch/lib/libamdhip64.so\n"
        "7f02-7f03 r-xp 00000000 08:01 13 /torch/lib/libhiprtc-builtins.so\n"
        "7f04-7f05 rw-p 00000000 00:00 0 \n"
        "7f06-7f07 r-xp 00000000 08:01 14 /torch/lib/libhiprtc.so.6\n"
    )
    monkeypatch.setattr(hip, "_MAPS", maps)
    assert hip._held("libamdhip64.so") == ["/torch/lib/libamdhip64.so"]
    assert hip._held("libhiprtc.so") == ["/torch/lib/libhiprtc.so.6"]
    monkeypatch.setattr(hip, "_MAPS", tmp_path / "none")
    assert hip._held("libamdhip64.so") == []
