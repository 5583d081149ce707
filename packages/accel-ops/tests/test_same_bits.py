# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The same bits for any number of threads and any instruction set, and conversions that round as torch does."""

import copy
import ctypes
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_ops import kernels

from .test_numerics import STATES, Case, call, draw_case

#: Random steps for each kernel.
CASES = 30


@pytest.fixture
def levels(functions: Any) -> Iterator[list[int]]:
    """The instruction sets of this machine; the test ends with the best one selected."""
    best = functions.accel_best_level()
    yield [level for level in (0, 1, 3, 4, 5) if functions.accel_set_level(level) == 0]
    functions.accel_set_level(best)


def random_case(kernel: str, number: int) -> Case:
    return draw_case(random.Random(f"{kernel} {number}"), kernel)


def result(case: Case, threads: int) -> list[torch.Tensor]:
    case = copy.deepcopy(case)
    torch.set_num_threads(threads)
    call(case)
    return [*case.params, *(tensor for state in case.states for tensor in state), *(case.copies or [])]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("kernel", STATES)
def test_enough_of_the_random_steps_run_in_two_threads(kernel: str) -> None:
    source = (Path(__file__).parents[1] / "csrc" / "optimizers.cpp").read_text(encoding="utf-8")
    grain = int(re.findall(r"kGrain = (\d+);", source)[0])
    sizes = [sum(param.numel() for param in random_case(kernel, number).params) for number in range(CASES)]
    assert sum(size > grain for size in sizes) >= 8


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("kernel", STATES)
def test_a_step_has_the_same_bits_on_every_level_and_thread_count(
    kernel: str, levels: list[int], functions: Any
) -> None:
    for number in range(CASES):
        case, seen = random_case(kernel, number), []
        for level in levels:
            assert functions.accel_set_level(level) == 0
            assert functions.accel_level() == level
            seen += [result(case, threads) for threads in (1, 2)]
        for other in seen[1:]:
            for one, another in zip(seen[0], other, strict=True):
                assert torch.equal(one, another)
                assert torch.equal(one.signbit(), another.signbit())


@pytest.mark.usefixtures("threads")
def test_a_norm_has_the_same_bits_on_every_level_and_thread_count(levels: list[int], functions: Any) -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(size) for size in (0, 5, 4095, 123_457, 999_999)]
    seen = set()
    for level in levels:
        functions.accel_set_level(level)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            seen.add(kernels.sum_of_squares(tensors))
    assert len(seen) == 1


def test_a_level_that_the_machine_lacks_is_refused(functions: Any) -> None:
    before = functions.accel_level()
    for level in (2, 6, -1):
        assert functions.accel_set_level(level) != 0
    assert functions.accel_level() == before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_halves_are_read_and_rounded_as_torch_does(
    dtype: torch.dtype, levels: list[int], functions: Any
) -> None:
    """All 65536 halves are read; floats around every rounding boundary are written, on every level."""
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    halves = halves[~halves.isinf()]
    exact = halves.float()[halves.isfinite()]
    bits = exact.view(torch.int32)
    shift = 16 if dtype == torch.bfloat16 else 13
    floats = torch.cat(
        [(bits + delta).view(torch.float32) for delta in (-1, 0, 1, 1 << (shift - 1), (1 << (shift - 1)) - 1)]
    )
    floats = torch.cat([floats, torch.tensor([65519.9, 65520.0, 3e38, 1e-45, -0.0])])
    floats = floats[floats.isfinite()]
    for level in levels:
        functions.accel_set_level(level)
        for source, target in (
            (halves, torch.zeros(len(halves))),
            (floats, torch.zeros(len(floats), dtype=dtype)),
        ):
            # A step with a learning rate of 0 converts the parameter to the copy.
            zeros = [torch.zeros(len(source))]
            kernels.adagrad(
                [source.clone()], zeros, [torch.zeros(len(source))], lr=0.0, eps=1.0, copies=[target]
            )
            want = source.to(target.dtype)
            same = (target == want) | (target.isnan() & want.isnan())
            assert same.all(), (level, source[~same][:4], target[~same][:4])


def test_fifteen_bytes_off_alignment_changes_nothing(functions: Any) -> None:
    torch.manual_seed(0)
    for offset in range(1, 16):
        aligned = [torch.randn(1000) for _ in range(4)]
        aligned[3].abs_()
        shifted = []
        for tensor in aligned:
            buffer = torch.zeros(4000 + 16, dtype=torch.uint8)
            ctypes.memmove(buffer.data_ptr() + offset, tensor.data_ptr(), 4000)
            shifted.append(torch.frombuffer(buffer.numpy()[offset : offset + 4000], dtype=torch.float32))
        options = {"step": 2, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
        for p, g, m, v in (aligned, shifted):
            kernels.adam([p], [g], [m], [v], **options)  # type: ignore[arg-type]
        for one, other in zip(aligned, shifted, strict=True):
            assert torch.equal(one, other)
