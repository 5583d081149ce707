# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The kernels of Adam and Lion as SPIR-V: the route, and float64's numbers."""

import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_ops.step_kernels import TYPES, KernelSteps
from accel_testkit.optimizer_steps import HALVES, expect_steps_of_float64
from accel_xpu import XPU_Accelerator
from accel_xpu.kernels import loading, packaged, shim

from .damage import ADD, DIVIDE, GREATER, LESS, MULTIPLY, SUBTRACT, replaced, rewrite

sys.path.insert(0, str(Path(__file__).parents[4] / "packages/accel-ops/tests/optimizers"))
from step_cases import CASES

LAUNCHES = len(TYPES)


def built(name: str) -> Any:
    builder = XPU_Accelerator().create_op_builder(name)
    assert builder is not None
    return builder


def same_as_plain(op: Any, kinds: Any, states: int, begin: int = 0) -> None:
    expect_steps_of_float64(op, kinds, states, "xpu", begin)


def test_lion_is_spir_v_from_the_wheel_to_the_result(queue: Any) -> None:
    builder = built("FusedLionBuilder")
    op = builder.load()
    assert (builder.reason, queue.launches) == ("spir-v", LAUNCHES)
    for begin in (0, 1):
        for kinds in TYPES:
            same_as_plain(op, kinds, states=1, begin=begin)
    assert queue.launches == LAUNCHES + 2 * 3 * len(TYPES)
    assert built("FusedLionBuilder").load() is not op
    assert queue.launches == LAUNCHES + 2 * 3 * len(TYPES)


def test_adam_s_kernels_take_the_types_that_torch_s_operators_refuse(queue: Any) -> None:
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


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    """The loaded kernels, for all the cases: a driver takes some tenths of a second for each."""
    return {}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_hundreds_of_random_steps_are_within_two_eps_of_float64(
    case: Any, queue: Any, kept: dict[str, Any]
) -> None:
    kernels = kept.setdefault("kernels", loading.LoadedKernels(shim.Shim(), packaged.modules()))
    draw = random.Random(f"spirv {case.__name__}")
    for _ in range(500):
        chunk = draw.choice([8, 32, 4096])
        case(KernelSteps("cpu", kernels.launch, chunk=chunk), draw)
    assert queue.launches >= 450


def test_device_that_computes_something_else_is_noticed(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
    "Lion goes the other way": ("lion", SUBTRACT, ADD),
    "means of Lion are differences": ("lion", ADD, SUBTRACT),
    "Lion's gradient is not scaled": ("lion", MULTIPLY, ADD),
    "Lion's sign": ("lion", GREATER, LESS),
    "Adam goes the other way": ("adam", SUBTRACT, ADD),
    "means of Adam are differences": ("adam", ADD, SUBTRACT),
    "a product in the place of Adam's quotient": ("adam", DIVIDE, MULTIPLY),
    "a sum in the place of a product": ("adam", MULTIPLY, ADD),
}


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_a_module_is_noticed_before_it_is_used(
    fault: str, last: bool, queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer, wanted, other = FAULTS[fault]
    name = f"accel_{optimizer}_f32_f32_f32"
    rewrite(tmp_path / "images", {name: replaced(packaged.modules()[name], wanted, other, last)})
    monkeypatch.setattr(packaged, "FOLDER", tmp_path / "images")
    builder = built(f"Fused{optimizer.title()}Builder")
    builder.load()
    builder.prepare()
    assert f"a trial step of {optimizer.title()} in f32_f32_f32 on xpu:0 is not what" in builder.reason
