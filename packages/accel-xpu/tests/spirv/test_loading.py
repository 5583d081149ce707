# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer's kernels as SPIR-V: the route, numpy's bits, and what a driver does with modules that are wrong."""

import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_ops.device_kernels import KernelNotStarted
from accel_ops.kernel_builders import ARGUMENTS
from accel_ops.quantizer import QuantizerFunctions
from accel_ops.quantizer_kernels import KernelQuantizerFunctions
from accel_xpu import XPU_Accelerator
from accel_xpu.kernels import loading, packaged, shim

from .damage import rewrite

sys.path.insert(0, str(Path(__file__).parents[4] / "packages/accel-ops/tests"))
from quantizer.test_random_cases import CASES

PLAIN = QuantizerFunctions()


def load() -> tuple[Any, str]:
    builder = XPU_Accelerator().create_op_builder("QuantizerBuilder")
    return builder.load(), builder.reason


def same(ours: Any, wanted: Any) -> None:
    for mine, theirs in zip(ours, wanted, strict=True):
        assert mine.device.type == "xpu"
        torch.testing.assert_close(mine.cpu(), theirs, rtol=0, atol=0, equal_nan=True)


def test_route_is_spir_v_from_the_wheel_to_the_result(queue: Any) -> None:
    op, reason = load()
    assert reason == "spir-v"
    before = queue.launches
    values, error = torch.randn(8, 64), torch.randn(512)
    there, error_there = values.to("xpu"), error.to("xpu")
    for bits in (8, 4):
        for kind in (0, 1):
            wanted, found = PLAIN.quantize(values, 8, bits, kind), op.quantize(there, 8, bits, kind)
            same(found, wanted)
            same([op.dequantize(*found, 8, bits, kind)], [PLAIN.dequantize(*wanted, 8, bits, kind)])
            arguments = 0.3, 8, bits, kind, 2, 2, 2
            found = op.loco_swizzle_quant(there, error_there, *arguments)
            same(found, PLAIN.loco_swizzle_quant(values, error, *arguments))
            same([error_there], [error])
    assert queue.launches - before == 12


def test_process_takes_the_shim_of_its_libsycl(queue: Any) -> None:
    assert shim.held() == shim.MAPS.read_text().partition("/lib/libsycl.so.")[2][0]
    op = KernelQuantizerFunctions("cpu", loaded().launch)
    assert torch.equal(
        op.quantize(torch.ones(1, 8), 1, 8, 0)[0], PLAIN.quantize(torch.ones(1, 8), 1, 8, 0)[0]
    )


def loaded() -> loading.LoadedKernels:
    return loading.LoadedKernels(shim.Shim(), packaged.modules())


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    """The loaded kernels, for all the cases: a driver takes some tenths of a second for each."""
    return {}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_hundreds_of_random_cases_are_numpy_s_bits(case: Any, queue: Any, kept: dict[str, Any]) -> None:
    kernels = kept.setdefault("kernels", loaded())
    op, draw = KernelQuantizerFunctions("cpu", kernels.launch), random.Random(f"spirv {case.__name__}")
    for _ in range(250):
        case(op, draw, unit=8)
    assert queue.launches >= 250


def test_captures_take_plain_torch(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    op, _ = load()
    monkeypatch.setattr(torch.xpu, "is_current_stream_capturing", lambda: True)
    values, before = torch.randn(2, 8), queue.launches
    same(op.quantize(values.to("xpu"), 2, 8, 0), PLAIN.quantize(values, 2, 8, 0))
    assert queue.launches == before


def test_libsycl_without_torch_s_queue_gives_way_to_plain_torch(
    queue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch._C, "_xpu_getCurrentRawStream")
    op, reason = load()
    assert reason.startswith("plain torch: torch has no queue")
    values = torch.randn(2, 8)
    same(op.quantize(values.to("xpu"), 2, 8, 0), PLAIN.quantize(values, 2, 8, 0))


def test_module_that_the_driver_refuses_gives_way_to_plain_torch(
    queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = packaged.modules()["accel_quantize_f32_8_sym"][:20]
    rewrite(tmp_path / "images", dict.fromkeys(ARGUMENTS, header))
    monkeypatch.setattr(packaged, "FOLDER", tmp_path / "images")
    assert load()[1].startswith("plain torch: libsycl does not load a module of SPIR-V: ")


def test_module_with_another_kernel_gives_way_to_plain_torch(
    queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = packaged.modules()["accel_reduce_8_sym"]
    rewrite(tmp_path / "images", dict.fromkeys(ARGUMENTS, other))
    monkeypatch.setattr(packaged, "FOLDER", tmp_path / "images")
    assert load()[1].startswith("plain torch: libsycl does not load accel_quantize_f32_8_sym: ")


def test_launch_that_libsycl_refuses_is_an_error_in_four_parts(queue: Any) -> None:
    arguments = (torch.empty(8), torch.empty(8), torch.empty(1), 8, 8)
    with pytest.raises(KernelNotStarted, match="libsycl does not start a kernel: "):
        loaded().launch("accel_dequantize_f32_8_sym", 1, 1 << 20, arguments)
