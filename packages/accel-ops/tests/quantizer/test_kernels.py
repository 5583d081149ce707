# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer's device kernels, on the host, a fiber a thread: against numpy to the last bit."""

import ctypes
import random
from typing import Any

import pytest
import torch

from accel_core.errors import InvalidOpArgument
from accel_ops import quantizer_kernels
from accel_ops.device_kernels import KernelsUnusable
from accel_ops.kernel_builders import ARGUMENTS, packed_arguments
from accel_ops.quantizer import QuantizerFunctions
from accel_ops.quantizer_kernels import KernelQuantizerFunctions, self_check
from accel_sim.driver import HostKernels
from accel_sim.driver.trials import with_any_threads

from .test_random_cases import CASES


@pytest.fixture(scope="module")
def kernels() -> HostKernels:
    return HostKernels(packed_arguments)


@pytest.fixture
def op(kernels: HostKernels) -> Any:
    kernels.launched.clear()
    return KernelQuantizerFunctions("cpu", kernels.launch)


@pytest.fixture
def op_of_any_threads(op: Any, kernels: HostKernels) -> Any:
    return KernelQuantizerFunctions("cpu", with_any_threads(kernels))


def test_argument_sizes_are_those_of_the_launcher_s_table(kernels: HostKernels) -> None:
    table = {name: [ctypes.sizeof(kind) for kind in kinds] for name, kinds in ARGUMENTS.items()}
    assert kernels.arguments() == table


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_random_cases(op_of_any_threads: Any, kernels: HostKernels, case: Any, count: int) -> None:
    draw = random.Random(f"{count} {case.__name__}")
    for _ in range(count):
        case(op_of_any_threads, draw, unit=8)
    assert len(kernels.launched) >= count


def test_wide_groups_take_several_rounds_of_a_block(op: Any, kernels: HostKernels) -> None:
    values = torch.randn(2, 20_000, generator=torch.Generator().manual_seed(0))
    plain = QuantizerFunctions()
    for kind in (0, 1):
        ours, wanted = op.quantize(values, 2, 8, kind), plain.quantize(values, 2, 8, kind)
        assert torch.equal(ours[0], wanted[0])
        assert torch.equal(ours[1], wanted[1])
        assert torch.equal(op.dequantize(*ours, 2, 8, kind), plain.dequantize(*wanted, 2, 8, kind))
    assert len(kernels.launched) == 4


STRIDED = torch.randn(16, 4, generator=torch.Generator().manual_seed(1)).t()
#: What kernels do not take, and what plain torch makes of it all the same.
NOT_TAKEN = {
    "groups of 4": (torch.randn(4, 4), 4),
    "no elements": (torch.empty(0, 8), 4),
    "not contiguous": (STRIDED, 4),
    "misaligned": (torch.randn(33)[1:].view(4, 8), 4),
    "float64": (torch.randn(4, 8, dtype=torch.float64), 4),
    "integers": (torch.ones(4, 8, dtype=torch.int32), 4),
}


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_other_tensors_go_to_plain_torch(name: str, op: Any, kernels: HostKernels) -> None:
    values, groups = NOT_TAKEN[name]
    ours, wanted = op.quantize(values, groups, 8, 0), QuantizerFunctions().quantize(values, groups, 8, 0)
    assert not kernels.launched
    assert torch.equal(ours[0], wanted[0])
    assert torch.equal(ours[1], wanted[1])


def test_sizes_that_do_not_fit_are_the_errors_of_plain_torch(op: Any, kernels: HostKernels) -> None:
    half, bytes_ = torch.ones(4, 8, dtype=torch.float16), torch.zeros(4, 8, dtype=torch.int8)
    steps = torch.ones(4, 1)
    for call in (
        lambda: op.quantize(half, 5, 8, 0),
        lambda: op.quantize(half, 4, 3, 0),
        lambda: op.swizzle_quant(half, 4, 8, 0, 1, 3, 1),
        lambda: op.dequantize(bytes_, steps, 8, 8, 0),
        lambda: op.dequantize(bytes_, torch.ones(3, 1), 4, 8, 0),
        lambda: op.quantized_reduction(bytes_, steps, 4, 4, 8, 0, 3),
        lambda: op.loco_swizzle_quant(half, torch.zeros(3), 0.5, 4, 8, 0, 1, 2, 2),
    ):
        with pytest.raises(InvalidOpArgument):
            call()
    assert not kernels.launched


def test_a_group_that_is_not_finite_is_seen_behind_it_and_others_are_not_touched(op: Any) -> None:
    values = torch.ones(3, 16, dtype=torch.float16)
    values[0, 5], values[1, 7] = float("nan"), float("inf")
    for bits in (8, 4):
        for kind in (0, 1):
            back = op.dequantize(*op.quantize(values, 3, bits, kind), 3, bits, kind)
            assert back.isfinite().all(1).tolist() == [False, False, True]


def test_sizes_beyond_32_bits_reach_the_kernels_whole() -> None:
    started: list[Any] = []
    op = KernelQuantizerFunctions("meta", lambda *launch: started.append(launch))
    values = torch.empty(2**20, 2**13, dtype=torch.float16, device="meta")
    data, steps = op.quantize(values, 2**20, 4, 0)
    assert data.shape == (2**20, 2**12)
    assert op.dequantize(data, steps, 2**20, 4, 0).shape == values.shape
    op.quantize(values, 1, 8, 1)
    assert [launch[:2] for launch in started] == [
        ("accel_quantize_f16_4_sym", 2**20), ("accel_dequantize_f16_4_sym", 2**14), ("accel_quantize_f16_8_asym", 1)
    ]  # fmt: skip
    whole = [[value.value for value in packed_arguments(name, given)[1]] for name, _, _, given in started]
    assert whole[0][3] == 2**13
    assert whole[1][3:] == [2**13, 2**33]
    assert whole[2][3] == 2**33


def test_more_groups_than_blocks_of_a_launch_are_not_taken() -> None:
    assert quantizer_kernels.lack_of_width(2**34, 2**31, 8) == "2147483648 groups, more than 2147483647"
    assert not quantizer_kernels.lack_of_width(2**34 - 8, 2**31 - 1, 8)


def test_parameters_are_float32_inside_zero_init(op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # It replaces torch's constructors: kernels would write beyond the end of tensors that are half as large.
    for name in ("empty", "zeros", "ones", "full"):
        made = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *sizes, made=made, **given: made(*sizes, **given).half())
    values = torch.arange(64.0).view(4, 16).half()
    data, parameters = op.quantize(values, 4, 8, 1)
    assert (data.dtype, parameters.dtype) == (torch.int8, torch.float32)
    assert op.dequantize_fp32(data, parameters, 4, 8, 1).dtype == torch.float32
    assert op.quantized_reduction(data, parameters, 4, 2, 8, 1, 2)[1].dtype == torch.float32


def test_device_can_say_why_plain_torch_computes(kernels: HostKernels) -> None:
    op: Any = KernelQuantizerFunctions("cpu", kernels.launch, lambda tensor: "it rests")
    kernels.launched.clear()
    found = op.quantize(torch.ones(2, 8), 2, 8, 0)
    op.dequantize(*found, 2, 8, 0)
    op.quantized_reduction(*found, 2, 1, 8, 0, 2)
    assert not kernels.launched


def test_reason_of_plain_torch_is_told_once(op: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "accel_core"):
        for _ in range(3):
            op.quantize(torch.randn(4, 4), 4, 8, 0)
    assert [record.message for record in caplog.records] == [
        "quantizer: plain torch for some tensors: groups of 4 elements, no multiple of 8"
    ]


def test_a_trial_notices_kernels_that_do_nothing_into_memory_of_an_earlier_one(
    kernels: HostKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, empty, made = torch.device("cpu"), quantizer_kernels._empty, []

    def kept(*given: Any) -> Any:
        made.append(empty(*given))
        return made[-1]

    monkeypatch.setattr(quantizer_kernels, "_empty", kept)
    self_check(kernels.launch, host)
    again = iter(made)
    monkeypatch.setattr(quantizer_kernels, "_empty", lambda *given: next(again))
    with pytest.raises(KernelsUnusable, match="8 bits"):
        self_check(lambda name, *rest: kernels.launch(name, *rest) if "dequantize" in name else None, host)
