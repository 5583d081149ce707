# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kernels as SPIR-V: the route, numpy's and float64's numbers, and what a driver does with modules that are wrong."""

import hashlib
import json
import random
import re
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_ops.optimizers.step_kernels import TYPES, KernelSteps
from accel_ops.quantizers.quantizer import QuantizerFunctions
from accel_ops.quantizers.quantizer_kernels import KernelQuantizerFunctions
from accel_ops.routes import ARGUMENTS
from accel_xpu import XPU_Accelerator
from accel_xpu.kernels import loading, packaged, shim
from shared.adam_steps import HALVES, expect_steps_of_float64

sys.path.insert(0, str(Path(__file__).parents[4] / "packages/accel-ops/tests"))
sys.path.insert(0, str(Path(__file__).parents[4] / "packages/accel-ops/tests/optimizers"))
import step_cases
from quantizer import random_cases as quantizer_cases

#: Numbers of instructions with two operands, from the specification.
ADD, SUBTRACT, MULTIPLY, DIVIDE, LESS, GREATER = 129, 131, 133, 136, 184, 186


def rewrite(folder: Path, contents: dict[str, bytes]) -> None:
    """Write modules with right hashes in the place of the installed ones."""
    shutil.copytree(packaged.FOLDER, folder)
    table = json.loads((folder / packaged.TABLE).read_text())
    for name, content in contents.items():
        (folder / f"{name}.spv").write_bytes(content)
        table["modules"][name]["sha256"] = hashlib.sha256(content).hexdigest()
    (folder / packaged.TABLE).write_text(json.dumps(table))


def replaced(module: bytes, wanted: int, other: int, last: bool) -> bytes:
    """Return a module with another number in the place of the first or the last such instruction."""
    words = list(struct.unpack(f"<{len(module) // 4}I", module))
    places, place = [], 5
    while place < len(words):
        if words[place] & 0xFFFF == wanted:
            places.append(place)
        place += words[place] >> 16
    chosen = places[-1 if last else 0]
    words[chosen] += other - wanted
    return struct.pack(f"<{len(words)}I", *words)


PLAIN = QuantizerFunctions()


def load() -> tuple[Any, str]:
    builder = XPU_Accelerator().create_op_builder("QuantizerBuilder")
    return builder.load(), builder.reason


def same(ours: Any, wanted: Any) -> None:
    for mine, theirs in zip(ours, wanted, strict=True):
        assert mine.device.type == "xpu"
        torch.testing.assert_close(mine.cpu(), theirs, rtol=0, atol=0, equal_nan=True)


def test_route_is_spir_v_from_the_wheel_to_the_result(queue):
    op, reason = load()
    assert reason == "spir-v"
    before = queue.launches
    values = torch.randn(8, 64)
    there = values.to("xpu")
    for bits in (8, 4):
        for kind in (0, 1):
            wanted, found = PLAIN.quantize(values, 8, bits, kind), op.quantize(there, 8, bits, kind)
            same(found, wanted)
            same([op.dequantize(*found, 8, bits, kind)], [PLAIN.dequantize(*wanted, 8, bits, kind)])
    assert queue.launches - before == 8


def loaded() -> loading.LoadedKernels:
    return loading.LoadedKernels(shim.Shim(), packaged.modules())


@pytest.mark.parametrize("case", quantizer_cases.CASES, ids=lambda case: case.__name__)
def test_hundreds_of_random_cases_are_numpy_s_bits(case, queue):
    kernels = loaded()
    op, draw = KernelQuantizerFunctions("cpu", kernels.launch), random.Random(f"spirv {case.__name__}")
    for _ in range(250):
        case(op, draw, unit=8)
    assert queue.launches >= 250


def test_captures_take_plain_torch(queue, monkeypatch):
    op, _ = load()
    monkeypatch.setattr(torch.xpu, "is_current_stream_capturing", lambda: True)
    values, before = torch.randn(2, 8), queue.launches
    same(op.quantize(values.to("xpu"), 2, 8, 0), PLAIN.quantize(values, 2, 8, 0))
    assert queue.launches == before


def test_libsycl_without_torch_s_queue_gives_way_to_plain_torch(queue, monkeypatch):
    monkeypatch.delattr(torch._C, "_xpu_getCurrentRawStream")
    op, reason = load()
    assert re.match("plain torch: .* torch has no queue: ", reason)
    values = torch.randn(2, 8)
    same(op.quantize(values.to("xpu"), 2, 8, 0), PLAIN.quantize(values, 2, 8, 0))


def test_module_that_the_driver_refuses_gives_way_to_plain_torch(queue, tmp_path, monkeypatch):
    header = packaged.modules()["accel_quantize_f32_8_sym"][:20]
    rewrite(tmp_path / "images", dict.fromkeys(ARGUMENTS, header))
    monkeypatch.setattr(packaged, "FOLDER", tmp_path / "images")
    assert re.match("plain torch: .* libsycl does not load a module of SPIR-V: ", load()[1])


# --- the kernels of Adam and Lion: the route, and float64's numbers


LAUNCHES = 2 * len(TYPES)


def built(name: str) -> Any:
    builder = XPU_Accelerator().create_op_builder(name)
    assert builder is not None
    return builder


def same_as_plain(op: Any, kinds: Any, states: int, begin: int = 0) -> None:
    expect_steps_of_float64(op, kinds, states, "xpu", begin)


def test_lion_is_spir_v_from_the_wheel_to_the_result(queue):
    builder = built("FusedLionBuilder")
    op = builder.load()
    assert (builder.reason, queue.launches) == ("spir-v", LAUNCHES)
    for begin in (0, 1):
        for kinds in TYPES:
            same_as_plain(op, kinds, states=1, begin=begin)
    assert queue.launches == LAUNCHES + 2 * 3 * len(TYPES)
    assert built("FusedLionBuilder").load() is not op
    assert queue.launches == LAUNCHES + 2 * 3 * len(TYPES)


def test_adam_s_kernels_take_the_types_that_torch_s_operators_refuse(queue):
    builder = built("FusedAdamBuilder")
    op = builder.load()
    same_as_plain(op, (torch.float32,) * 3, states=2)
    assert queue.launches == 0
    assert "; kernels (SPIR-V) if they work when first needed, else plain torch for mixed" in builder.reason
    mixed = [kinds for kinds in TYPES if len(set(kinds)) > 1]
    for begin in (0, 1):
        for kinds in mixed:
            same_as_plain(op, kinds, states=2, begin=begin)
    assert queue.launches == 2 * LAUNCHES + 2 * 3 * len(mixed)
    assert builder.reason.endswith("; kernels (spir-v) and plain torch for mixed types and strided tensors")


@pytest.mark.parametrize("case", step_cases.CASES, ids=lambda case: case.__name__)
def test_hundreds_of_random_steps_are_within_two_eps_of_float64(case, queue):
    kernels = loaded()
    draw = random.Random(f"spirv {case.__name__}")
    for _ in range(500):
        chunk = draw.choice([8, 32, 4096])
        case(KernelSteps("cpu", kernels.launch, chunk=chunk), draw)
    assert queue.launches >= 450


def test_device_that_computes_something_else_is_noticed(queue, monkeypatch):
    monkeypatch.setattr(shim.Shim, "launch", lambda *arguments: None)
    lion_builder, adam_builder = built("FusedLionBuilder"), built("FusedAdamBuilder")
    op = lion_builder.load()
    wrong = "a trial step of {} in f32_f32_f32 on xpu:0 is not what plain torch computes"
    assert lion_builder.reason == "plain torch: " + wrong.format("Lion")
    same_as_plain(op, HALVES, states=1)
    same_as_plain(adam_builder.load(), HALVES, states=2)
    assert f"; plain torch (no kernels: {wrong.format('Adam')}) for" in adam_builder.reason


#: An instruction of a kernel, and another one in its place.
FAULTS = {
    "means of Lion are differences": ("lion", ADD, SUBTRACT),
    "Lion's sign": ("lion", GREATER, LESS),
    "Adam goes the other way": ("adam", SUBTRACT, ADD),
    "a product in the place of Adam's quotient": ("adam", DIVIDE, MULTIPLY),
}


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_a_module_is_noticed_before_it_is_used(fault, last, queue, tmp_path, monkeypatch):
    optimizer, wanted, other = FAULTS[fault]
    name = f"accel_{optimizer}_f32_f32_f32"
    rewrite(tmp_path / "images", {name: replaced(packaged.modules()[name], wanted, other, last)})
    monkeypatch.setattr(packaged, "FOLDER", tmp_path / "images")
    builder = built(f"Fused{optimizer.title()}Builder")
    builder.load()
    builder.prepare()
    assert f"a trial step of {optimizer.title()} in f32_f32_f32 on xpu:0 is not what" in builder.reason
