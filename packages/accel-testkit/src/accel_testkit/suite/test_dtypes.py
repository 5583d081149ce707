# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Data types: what the device says it computes in, it computes in."""

from __future__ import annotations

import sys

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect, expect_type

pytestmark = pytest.mark.tier("device")

_ANSWERS = (
    "is_bf16_supported",
    "is_fp16_supported",
    "is_fp64_supported",
    "is_triton_supported",
    "prefer_triton_grouped_mm",
)
#: Largest error of a product of two 16 x 16 matrices of numbers in [0, 1), by type.
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1.5e-1, torch.float64: 1e-10}


@pytest.mark.parametrize("name", _ANSWERS)
def test_answer_is_yes_or_no(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Questions about types are answered with True or False, never None."""
    expect_type(getattr(accelerator, name)(), bool, f"{name}()", do="return a bool on every path")


def test_list_begins_with_float32(accelerator: DeepSpeedAccelerator) -> None:
    """`supported_dtypes()` is a list of floating torch.dtypes, each once, float32 first."""
    dtypes = accelerator.supported_dtypes()
    expect(
        isinstance(dtypes, list)
        and dtypes[:1] == [torch.float32]
        and all(isinstance(item, torch.dtype) and item.is_floating_point for item in dtypes)
        and len(set(dtypes)) == len(dtypes),
        "supported_dtypes() is no list of training types",
        found=repr(dtypes),
        expected="[torch.float32, ...], each type once",
        do="list the floating point types that DeepSpeed may train in",
    )


@pytest.mark.parametrize(
    ("dtype", "question"),
    [(torch.bfloat16, "is_bf16_supported"), (torch.float16, "is_fp16_supported")],
    ids=["bf16", "fp16"],
)
def test_list_agrees_with_the_answers(
    accelerator: DeepSpeedAccelerator, dtype: torch.dtype, question: str
) -> None:
    """A half type is in `supported_dtypes()` exactly when its question is answered with True."""
    listed, answer = dtype in accelerator.supported_dtypes(), getattr(accelerator, question)()
    expect(
        listed == bool(answer),
        f"supported_dtypes() and {question}() contradict each other",
        found=f"listed: {listed}, {question}(): {answer}",
        expected="both or neither",
        do="build the list from the answers",
    )


def test_listed_types_compute(accelerator: DeepSpeedAccelerator) -> None:
    """A product of matrices in every listed type is right within that type's precision."""
    generator = torch.Generator().manual_seed(5)
    left, right = torch.rand(2, 16, 16, generator=generator, dtype=torch.float64)
    errors = {}
    for dtype in accelerator.supported_dtypes():
        product = left.to(accelerator.device(), dtype) @ right.to(accelerator.device(), dtype)
        errors[dtype] = float((product.cpu().double() - left @ right).abs().max())
    wrong = {dtype: error for dtype, error in errors.items() if not error <= _TOLERANCE.get(dtype, 1.0)}
    expect(
        not wrong,
        "a listed type computes wrongly",
        found=", ".join(f"{dtype}: error {error:g}" for dtype, error in wrong.items()),
        expected=", ".join(f"{dtype}: at most {_TOLERANCE.get(dtype, 1.0):g}" for dtype in wrong),
        do="list only the types that the device computes in",
    )


@pytest.mark.needs("fp64")
def test_double_precision_computes(accelerator: DeepSpeedAccelerator) -> None:
    """Where `is_fp64_supported()` is not declared missing, float64 keeps its precision on the device."""
    found = (torch.ones(1, dtype=torch.float64).to(accelerator.device()) / 3).cpu().item()
    expect(
        accelerator.is_fp64_supported() and abs(found - 1 / 3) < 1e-15,
        "float64 does not compute",
        found=f"1 / 3 is {found!r}, is_fp64_supported() {accelerator.is_fp64_supported()}",
        expected="0.3333333333333333 and True",
        do="declare the trait fp64 where the device has no double precision",
    )


def test_triton_is_not_imported_to_answer(
    accelerator: DeepSpeedAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`is_triton_supported()` answers without importing Triton."""
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    accelerator.is_triton_supported()
    expect(
        "triton" not in sys.modules,
        "is_triton_supported() imports Triton",
        found="triton in sys.modules after the call",
        expected="no import: DeepSpeed asks while it is imported itself",
        do="answer from what the device is",
    )


def test_triton_is_not_preferred_without_support(accelerator: DeepSpeedAccelerator) -> None:
    """`prefer_triton_grouped_mm()` is False where Triton is not supported."""
    expect(
        accelerator.is_triton_supported() or not accelerator.prefer_triton_grouped_mm(),
        "Triton is preferred and not supported",
        found="prefer_triton_grouped_mm() True, is_triton_supported() False",
        expected="no preference for what does not run",
        do="return False where is_triton_supported() is False",
    )


def test_listed_types_are_trained_in(accelerator: DeepSpeedAccelerator) -> None:
    """In every listed type a layer has a forward and a backward pass, and weights are stepped: what training is."""
    problems = []
    for dtype in accelerator.supported_dtypes():
        try:
            weight = torch.full((4, 4), 0.5, device=accelerator.device(), dtype=dtype, requires_grad=True)
            rows = torch.ones(2, 4, device=accelerator.device(), dtype=dtype)
            torch.nn.functional.linear(rows, weight).sum().backward()
            torch.optim.SGD([weight], lr=0.125).step()
            found = weight.detach().cpu().double().tolist()
        except Exception as error:
            problems.append(f"{dtype}: {type(error).__name__}: {error!s:.100}")
            continue
        if found != [[0.25] * 4] * 4:
            problems.append(f"{dtype}: weights of {found[0]}")
    expect(
        not problems,
        "a listed type cannot be trained in",
        found="; ".join(problems),
        expected="weights of 0.25 after a step of 0.125 times a gradient of 2, from 0.5",
        do="leave out types of storage alone, such as those of 8 bits",
    )
