# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer's kernels from image to result, on the emulated driver of accel-sim."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_cuda import CUDA_Accelerator
from accel_cuda.kernels import driver, images
from accel_ops.kernel_builders import ARGUMENTS
from accel_ops.quantizer import QuantizerFunctions
from accel_sim.driver import emulated

from .machine import stand_ins, wheel

pytestmark = pytest.mark.skipif("ACCEL_SIM" not in os.environ, reason="not run: a real driver is here")
PLAIN = QuantizerFunctions()


def load() -> tuple[Any, str]:
    builder = CUDA_Accelerator().create_op_builder("QuantizerBuilder")
    return builder.load(), builder.reason


def same(ours: Any, wanted: Any) -> None:
    for mine, theirs in zip(ours, wanted, strict=True):
        assert mine.device.type == "cuda"
        torch.testing.assert_close(mine.cpu(), theirs, rtol=0, atol=0, equal_nan=True)


def test_all_functions_give_the_bits_of_plain_torch(machine: Any) -> None:
    op, _ = load()
    draw, before = random.Random(0), machine.accel_driver_launches()
    for _ in range(24):
        bits, kind = draw.choice([4, 8]), draw.choice([0, 1])
        dtypes = [torch.half, torch.bfloat16, torch.float]
        values = (torch.randn(8, 8 * draw.randint(1, 9)) * 9).to(draw.choice(dtypes))
        values[draw.randrange(8), 3] = draw.choice([0.0, float("nan"), float("inf")])
        error, there = torch.randn(values.numel()).to(draw.choice(dtypes)), values.cuda()
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
        error_there = error.cuda()
        arguments = 0.3, 8, bits, kind, 2, 2, 2
        found = op.loco_swizzle_quant(there, error_there, *arguments)
        same(found, PLAIN.loco_swizzle_quant(values, error, *arguments))
        same([error_there], [error])
    assert machine.accel_driver_launches() - before == 24 * 6


def quantize_on_each_device(op: Any, machine: Any) -> None:
    values = torch.randn(2, 8)
    for index in range(torch.cuda.device_count()):
        same(op.quantize(values.to(f"cuda:{index}"), 2, 8, 0), PLAIN.quantize(values, 2, 8, 0))
        assert machine.accel_driver_last_device() == index


@pytest.mark.parametrize("version", [12080, 11080], ids=["one library", "a module a context"])
def test_a_context_of_another_device_may_be_current(version: int, machine: Any) -> None:
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
def test_image_that_cannot_be_used_gives_way_to_plain_torch(fault: str, machine: Any, tmp_path: Path) -> None:
    damage, reported = FAULTS[fault]
    damage(tmp_path)
    op, reason = load()
    assert reason.startswith("plain torch: ")
    assert reported in reason
    assert "no NVRTC beside torch" in reason
    values = torch.randn(2, 8)
    same(op.quantize(values.cuda(), 2, 8, 0), PLAIN.quantize(values, 2, 8, 0))


def test_machine_without_a_driver_takes_plain_torch(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LIBRARY", "libcuda-of-nobody.so.1")
    _op, reason = load()
    assert reason.startswith("plain torch: no usable driver libcuda-of-nobody.so.1")


def test_captures_take_plain_torch(machine: Any) -> None:
    op, _ = load()
    values, graph = torch.randn(2, 8, device="cuda"), torch.cuda.CUDAGraph()
    before = machine.accel_driver_launches()
    with torch.cuda.graph(graph):
        found = op.quantize(values, 2, 8, 0)
    assert machine.accel_driver_launches() == before
    values.copy_(torch.arange(16.0).view(2, 8))
    graph.replay()
    same(found, PLAIN.quantize(values.cpu(), 2, 8, 0))
