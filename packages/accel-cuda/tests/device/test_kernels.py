# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kernels from image to result, on the drivers that accel-sim emulates: CUDA's, and HIP's with hipRTC."""

import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accel_cuda import CUDA_Accelerator
from accel_cuda.kernels import compiled_here, driver, hip, images, loading
from accel_ops import routes
from accel_ops.device.driver_kernels import KernelNotStarted, KernelsUnusable
from accel_ops.optimizers.step_kernels import TYPES
from accel_ops.quantizers.quantizer import QuantizerFunctions
from accel_ops.routes import ARGUMENTS
from accel_sim.driver import emulated
from shared.adam_steps import HALVES, expect_steps_of_float64, take

from .conftest import FLAGS, stand_ins, wheel

pytestmark = pytest.mark.skipif("ACCEL_SIM" not in os.environ, reason="not run: a real driver is here")
PLAIN = QuantizerFunctions()


def load(name: str = "QuantizerBuilder") -> tuple[Any, str]:
    builder = CUDA_Accelerator().create_op_builder(name)
    op = builder.load()
    builder.prepare()
    return op, builder.reason


def same(ours: Any, wanted: Any) -> None:
    for mine, theirs in zip(ours, wanted, strict=True):
        assert mine.device.type == "cuda"
        torch.testing.assert_close(mine.cpu(), theirs, rtol=0, atol=0, equal_nan=True)


def test_all_functions_give_the_bits_of_plain_torch(machine):
    op, _ = load()
    draw, before = random.Random(0), machine.accel_driver_launches()
    for _ in range(24):
        bits, kind = draw.choice([4, 8]), draw.choice([0, 1])
        dtypes = [torch.half, torch.bfloat16, torch.float]
        values = (torch.randn(8, 8 * draw.randint(1, 9)) * 9).to(draw.choice(dtypes))
        values[draw.randrange(8), 3] = draw.choice([0.0, float("nan"), float("inf")])
        there = values.cuda()
        wanted = PLAIN.quantize(values, 8, bits, kind)
        found = op.quantize(there, 8, bits, kind)
        same(found, wanted)
        same([op.dequantize(*found, 8, bits, kind)], [PLAIN.dequantize(*wanted, 8, bits, kind)])
        same([op.dequantize_fp32(*found, 8, bits, kind)], [PLAIN.dequantize_fp32(*wanted, 8, bits, kind)])
        found = op.swizzle_quant(there, 8, bits, kind, 1, 2, 2)
        wanted = PLAIN.swizzle_quant(values, 8, bits, kind, 1, 2, 2)
        same(found, wanted)
        rest = 8, 4, bits, kind, 2
        same(op.quantized_reduction(*found, *rest), PLAIN.quantized_reduction(*wanted, *rest))
    assert machine.accel_driver_launches() - before == 24 * 5


def quantize_on_each_device(op: Any, machine: Any) -> None:
    values = torch.randn(4, 40)
    for index in range(torch.cuda.device_count()):
        for bits, kind in ((8, 0), (4, 1)):
            found = op.quantize(values.to(f"cuda:{index}"), 4, bits, kind)
            assert machine.accel_driver_last_device() == index
            same(found, PLAIN.quantize(values, 4, bits, kind))


@pytest.mark.parametrize("version", [12080, 11080], ids=["one library", "a module a context"])
def test_a_context_of_another_device_may_be_current(version, machine):
    machine.accel_driver_set(torch.cuda.device_count(), version, 90)
    op, reason = load()
    assert reason == "image sm_90"
    with driver.Driver().current(torch.cuda.device_count() - 1):
        quantize_on_each_device(op, machine)


def truncated(folder: Path) -> None:
    path = folder / "sm_90.cubin"
    path.write_bytes(path.read_bytes()[:100])


def foreign(folder: Path) -> None:
    wheel(folder, {"sm_90": b"\x7fELF" + bytes(60)})


FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (truncated, "the image sm_90 is damaged or of another build"),
    "not of CUDA": (foreign, "CUDA_ERROR_INVALID_IMAGE"),
    "of another architecture": (
        lambda folder: wheel(folder, {"sm_90": emulated.stand_in(80, ARGUMENTS)}), "CUDA_ERROR_NO_BINARY_FOR_GPU"
    ),
    "without a kernel": (
        lambda folder: wheel(folder, stand_ins(90, kernels=["accel_other"])), "CUDA_ERROR_NOT_FOUND"
    ),
    "for other devices": (lambda folder: wheel(folder, stand_ins(80, 100)), "no image for compute capability 9.0"),
    "missing": (lambda folder: (folder / "sm_90.cubin").unlink(), "the image sm_90 cannot be read"),
    "no table": (lambda folder: (folder / images.TABLE).unlink(), "no images in this install"),
    "a damaged table": (lambda folder: (folder / images.TABLE).write_text("{"), "the table of images cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_image_that_cannot_be_used_gives_way_to_plain_torch(fault, machine, tmp_path):
    damage, reported = FAULTS[fault]
    damage(tmp_path)
    op, reason = load()
    assert reason.startswith("plain torch: ")
    assert reported in reason
    assert "no NVRTC next to torch" in reason
    values = torch.randn(2, 8)
    same(op.quantize(values.cuda(), 2, 8, 0), PLAIN.quantize(values, 2, 8, 0))


def test_machine_without_a_driver_takes_plain_torch(machine, monkeypatch):
    monkeypatch.setattr(driver, "LIBRARY", "libcuda-of-nobody.so.1")
    _op, reason = load()
    assert reason.startswith("plain torch: no usable driver libcuda-of-nobody.so.1")


def test_captures_take_plain_torch(machine):
    op, _ = load()
    values, graph = torch.randn(2, 8, device="cuda"), torch.cuda.CUDAGraph()
    before = machine.accel_driver_launches()
    with torch.cuda.graph(graph):
        found = op.quantize(values, 2, 8, 0)
    assert machine.accel_driver_launches() == before
    values.copy_(torch.arange(16.0).view(2, 8))
    graph.replay()
    same(found, PLAIN.quantize(values.cpu(), 2, 8, 0))


# --- the optimizers' kernels


@pytest.mark.parametrize("begin", [0, 1], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("kinds", TYPES, ids=TYPES.values())
def test_adam_and_lion_are_those_of_float64(kinds, begin, machine):
    fused_adam, reason = load("FusedAdamBuilder")
    assert reason.endswith("; kernels (image sm_90) and plain torch for mixed types and strided tensors")
    before, launches = machine.accel_driver_launches(), 0 if len(set(kinds)) == 1 else 3
    expect_steps_of_float64(fused_adam, kinds, 2, "cuda", begin)
    assert machine.accel_driver_launches() - before == launches
    fused_lion, reason = load("FusedLionBuilder")
    assert reason == "image sm_90"
    before = machine.accel_driver_launches()
    expect_steps_of_float64(fused_lion, kinds, 1, "cuda", begin)
    assert machine.accel_driver_launches() - before == 3


def test_kernels_run_on_the_current_stream_and_device(machine):
    op, _ = load("FusedLionBuilder")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        lists = [[torch.ones(8, device="cuda")] for _ in range(3)]
        take(op, lists)
        assert (machine.accel_driver_last_stream() or 0) == stream.cuda_stream
    for index in range(torch.cuda.device_count()):
        expect_steps_of_float64(op, HALVES, 1, f"cuda:{index}")
        assert machine.accel_driver_last_device() == index


@pytest.mark.parametrize("version", [12080, 11080], ids=["one library", "a module a context"])
def test_threads_without_a_context_can_take_steps(version, machine):
    machine.accel_driver_set(torch.cuda.device_count(), version, 90)
    op, _ = load("FusedLionBuilder")
    failures: list[BaseException] = []

    def steps():
        try:
            for index in range(torch.cuda.device_count()):
                expect_steps_of_float64(op, HALVES, 1, f"cuda:{index}")
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=steps)
    thread.start()
    thread.join()
    assert not failures


@pytest.mark.parametrize(
    ("name", "trial"),
    [("QuantizerBuilder", "a trial of 8 bits"), ("FusedLionBuilder", "a trial step of Lion in f32_f32_f32")],
)
def test_device_that_computes_something_else_is_noticed_at_load(name, trial, machine, monkeypatch):
    monkeypatch.setattr(driver.Driver, "launch", lambda *arguments: None)
    assert f"{trial} on cuda:0 is not what plain torch computes" in load(name)[1]


def test_refused_launch_is_an_error(machine, monkeypatch):
    def refuse(*arguments):
        raise KernelsUnusable("cuLaunchKernel returns CUDA_ERROR_LAUNCH_FAILED (719)")

    op, _ = load("FusedLionBuilder")
    monkeypatch.setattr(driver.Driver, "launch", refuse)
    with pytest.raises(KernelNotStarted, match="CUDA_ERROR_LAUNCH_FAILED"):
        take(op, [[torch.ones(8, device="cuda")] for _ in range(3)])


# --- kernels on ROCm, from hipRTC to result


TARGET = "gfx90a:sramecc+:xnack-"


@pytest.fixture
def rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two MI250 with ROCm's torch, and an empty cache. Returns the emulated runtime."""
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName=TARGET)
    )
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path))
    runtime = emulated.load(emulated.LIBHIP, flags=FLAGS)
    runtime.accel_driver_set(torch.cuda.device_count(), 0, 0)
    runtime.accel_driver_set_architecture(TARGET.encode())
    loading._architecture.cache_clear()
    yield runtime
    loading._architecture.cache_clear()


def test_quantizer_is_compiled_here_once(rocm, monkeypatch):
    op, reason = load()
    assert reason == f"compiled here: {TARGET}"
    before = rocm.accel_driver_launches()
    quantize_on_each_device(op, rocm)
    assert rocm.accel_driver_launches() - before == 2 * torch.cuda.device_count()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        op.quantize(torch.ones(2, 8, device="cuda"), 2, 8, 0)
        assert (rocm.accel_driver_last_stream() or 0) == stream.cuda_stream
    monkeypatch.setattr(compiled_here.rtc, "compiled", None)
    routes.tried.cache_clear()
    assert load()[1] == reason


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("name", "states", "reported"),
    [
        ("FusedAdamBuilder", 2, f"; kernels (compiled here: {TARGET}) and plain torch for mixed types"),
        ("FusedLionBuilder", 1, f"compiled here: {TARGET}"),
    ],
)
def test_optimizers_are_those_of_float64(name, states, reported, kind, rocm):
    op, reason = load(name)
    assert reported in reason
    before = rocm.accel_driver_launches()
    expect_steps_of_float64(op, (kind, kind, torch.float32), states, "cuda")
    assert rocm.accel_driver_launches() - before == 3


#: What is changed, and the reason for plain torch.
HIP_FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch, Any], object], str]] = {
    "no runtime": (
        lambda patch, rocm: patch.setattr(hip, "RUNTIMES", ("libamdhip64-of-nobody.so",)), "no libamdhip64.so"
    ),
    "another device": (
        lambda patch, rocm: rocm.accel_driver_set_architecture(b"gfx942"),
        "hipModuleLoadData returns hipErrorNoBinaryForGpu (209)",
    ),
    "an unknown target": (
        lambda patch, rocm: patch.setattr(
            torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName="gfx000")
        ),
        "hiprtc makes no image for gfx000: error: unknown target 'gfx000'",
    ),
    "contracted products": (
        lambda patch, rocm: patch.setattr(compiled_here.rtc, "HIPRTC", compiled_here.rtc.HIPRTC._replace(options=())),
        f"hiprtc makes no image for {TARGET}: error: a * b + c would be contracted",
    ),
    "wrong numbers": (
        lambda patch, rocm: patch.setattr(hip.Runtime, "launch", lambda *arguments: None),
        "a trial of 8 bits on cuda:0 is not what plain torch computes",
    ),
    "no source": (  # of a wheel, nor of a checkout
        lambda patch, rocm: [patch.setattr(compiled_here, name, Path("nowhere")) for name in ("_PACKAGED", "_HEADERS")],
        "no source of kernels in this install",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", HIP_FAULTS)
def test_what_cannot_be_used_gives_way_to_plain_torch(fault, rocm, monkeypatch):
    change, reported = HIP_FAULTS[fault]
    change(monkeypatch, rocm)
    op, reason = load()
    assert reason.startswith("plain torch: ")
    assert reported in reason
    values = torch.randn(2, 8)
    found, wanted = op.quantize(values.cuda(), 2, 8, 0), PLAIN.quantize(values, 2, 8, 0)
    assert torch.equal(found[0].cpu(), wanted[0])
