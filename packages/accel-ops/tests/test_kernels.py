# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The device kernels of quantizer and optimizers, on the host, a fiber a thread."""

import ctypes
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_core.errors import InvalidOpArgument
from accel_core.native import compiler
from accel_ops.device.driver_kernels import KernelsUnusable, log_fallback
from accel_ops.optimizers import fused, step_kernels
from accel_ops.optimizers.fused import AdamStep
from accel_ops.optimizers.step_kernels import TENSORS, KernelSteps, tables
from accel_ops.quantizers import quantizer_kernels
from accel_ops.quantizers.quantizer import QuantizerFunctions
from accel_ops.quantizers.quantizer_kernels import KernelQuantizerFunctions, self_check
from accel_ops.routes import ARGUMENTS, packed_arguments
from accel_sim import shared
from accel_sim.driver import HostKernels, source
from accel_sim.driver.trials import planted, run_sanitized, with_any_threads

from .optimizers import step_cases
from .quantizer import random_cases

HALF = torch.bfloat16
ADAM = AdamStep(torch.zeros(1), 0.1, 0.9, 0.99, 1e-8, 3, 1, 1, 0.1)


@pytest.fixture(scope="module")
def built() -> HostKernels:
    return HostKernels(packed_arguments)


@pytest.fixture
def kernels(built: HostKernels) -> HostKernels:
    """The kernels, of which none was launched."""
    built.launched.clear()
    return built


@pytest.fixture
def op(kernels: HostKernels) -> Any:
    return KernelQuantizerFunctions("cpu", kernels.launch)


@pytest.fixture
def steps(kernels: HostKernels) -> KernelSteps:
    return KernelSteps("cpu", kernels.launch)


def test_argument_sizes_are_the_launcher_s_and_below_what_every_driver_takes(kernels):
    sizes = {name: [ctypes.sizeof(kind) for kind in kinds] for name, kinds in ARGUMENTS.items()}
    assert kernels.arguments() == sizes
    assert max(map(sum, sizes.values())) <= 2048


STRIDED = torch.randn(16, 4, generator=torch.Generator().manual_seed(1)).t()
#: What kernels do not take, and what plain torch makes of it all the same.
NOT_QUANTIZED = {
    "groups of 4": (torch.randn(4, 4), 4),
    "no elements": (torch.empty(0, 8), 4),
    "not contiguous": (STRIDED, 4),
    "misaligned": (torch.randn(33)[1:].view(4, 8), 4),
    "float64": (torch.randn(4, 8, dtype=torch.float64), 4),
    "integers": (torch.ones(4, 8, dtype=torch.int32), 4),
}


@pytest.mark.parametrize("name", NOT_QUANTIZED)
def test_other_tensors_are_quantized_in_plain_torch(name, op, kernels):
    values, groups = NOT_QUANTIZED[name]
    ours, wanted = op.quantize(values, groups, 8, 0), QuantizerFunctions().quantize(values, groups, 8, 0)
    assert not kernels.launched
    assert torch.equal(ours[0], wanted[0])
    assert torch.equal(ours[1], wanted[1])


def test_sizes_that_do_not_fit_are_the_errors_of_plain_torch(op, kernels):
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


def test_sizes_beyond_32_bits_reach_the_quantizer_s_kernels_whole():
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


def test_parameters_are_float32_inside_zero_init(op, monkeypatch):
    # It replaces torch's constructors: kernels would write beyond the end of tensors that are half as large.
    for name in ("empty", "zeros", "ones", "full"):
        made = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *sizes, made=made, **given: made(*sizes, **given).half())
    values = torch.arange(64.0).view(4, 16).half()
    data, parameters = op.quantize(values, 4, 8, 1)
    assert (data.dtype, parameters.dtype) == (torch.int8, torch.float32)
    assert op.dequantize_fp32(data, parameters, 4, 8, 1).dtype == torch.float32
    assert op.quantized_reduction(data, parameters, 4, 2, 8, 1, 2)[1].dtype == torch.float32


def test_a_trial_notices_kernels_that_do_nothing_into_memory_of_an_earlier_one(kernels, monkeypatch):
    host, empty, made = torch.device("cpu"), quantizer_kernels._empty, []

    def kept(*given):
        made.append(empty(*given))
        return made[-1]

    monkeypatch.setattr(quantizer_kernels, "_empty", kept)
    self_check(kernels.launch, host)
    again = iter(made)
    monkeypatch.setattr(quantizer_kernels, "_empty", lambda *given: next(again))
    with pytest.raises(KernelsUnusable, match="8 bits"):
        self_check(lambda name, *rest: kernels.launch(name, *rest) if "dequantize" in name else None, host)


def some(shape: Any = (5, 3), *kinds: torch.dtype) -> list[list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        [torch.rand(shape, generator=generator).to(kind)]
        for kind in kinds or (HALF, HALF, *[torch.float32] * 2)
    ]


def in_plain_torch(lists: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    """The lists after a step in plain torch; those that are given stay."""
    made = [[tensor.clone() for tensor in column] for column in lists]
    fused.adam_step(made, ADAM)
    return made


def test_all_tensors_of_a_type_are_started_together(steps, kernels):
    rows = [some((7,)) for _ in range(TENSORS + 1)] + [some((7,), *[torch.float32] * 4)]
    steps.adam([[row[place][0] for row in rows] for place in range(4)], ADAM)
    assert kernels.launched == ["accel_adam_bf16_bf16_f32"] * 2 + ["accel_adam_f32_f32_f32"]


class Other(torch.Tensor):
    """A tensor whose memory is nobody's business."""


NOT_STEPPED: dict[str, tuple[str, list[list[torch.Tensor]]]] = {
    "strided": ("cpu", [[column[0].t()] for column in some()]),
    "expanded gradients": ("cpu", [[torch.ones(1).expand(6)], *some((6,), *[torch.float32] * 3)]),
    "float64": ("cpu", some((5, 3), *[torch.float64] * 4)),
    "moments of two types": ("cpu", some((5, 3), HALF, HALF, torch.float32, HALF)),
    "a subclass": ("cpu", [[column[0].as_subclass(Other)] for column in some()]),
    "another device": ("cuda", some()),
}


@pytest.mark.parametrize("name", NOT_STEPPED)
def test_other_tensors_go_to_plain_torch(kernels, name):
    device, lists = NOT_STEPPED[name]
    wanted = in_plain_torch(lists)
    KernelSteps(device, kernels.launch).adam(lists, ADAM)
    assert not kernels.launched
    for ours, theirs in zip(lists[1:], wanted[1:], strict=True):
        assert torch.equal(ours[0], theirs[0])


def test_shapes_that_differ_are_the_error_of_plain_torch(steps, kernels):
    with pytest.raises(RuntimeError):
        steps.adam([some((6,))[0], *some((5,))[1:]], ADAM)
    assert not kernels.launched


def test_nothing_is_started_for_empty_tensors(steps, kernels):
    steps.adam([[], [], [], []], ADAM)
    steps.adam(some((0, 3)), ADAM)
    assert not kernels.launched


def test_views_that_are_not_aligned_are_taken(steps, kernels):
    lists = [[column[0].view(-1)[1:14]] for column in some()]
    whole = [column[0]._base.clone() for column in lists]
    wanted = in_plain_torch(lists)
    steps.adam(lists, ADAM)
    assert len(kernels.launched) == 1
    for ours, theirs, before in zip(lists[1:], wanted[1:], whole[1:], strict=True):
        torch.testing.assert_close(ours[0], theirs[0], rtol=1e-2, atol=1e-6)
        assert ours[0]._base[0, 0] == before[0, 0]
        assert torch.equal(ours[0]._base.view(-1)[14:], before.view(-1)[14:])


def test_sizes_beyond_32_bits_reach_the_kernels_whole():
    started: list[Any] = []
    steps = KernelSteps("meta", lambda *launch: started.append(launch))
    kinds = HALF, HALF, torch.float32
    lists = [[torch.empty(2**33 + 1, dtype=kind, device="meta")] for kind in kinds]
    steps.multi_tensor_lion(2048, torch.zeros(1), lists, 0.1, 0.9, 0.99, 1, 0.0)
    ((name, blocks, _threads, (table, _values)),) = started
    assert (name, blocks) == ("accel_lion_bf16_bf16_f32", 2**21 + 1)
    assert (table.size[0], table.end[0]) == (2**33 + 1, 2**21 + 1)


def test_more_blocks_than_a_launch_has_are_two_launches(monkeypatch):
    monkeypatch.setattr(step_kernels, "_MOST_BLOCKS", 5)
    row = [torch.empty(24)]
    assert [(blocks, list(table.end[:2])) for table, blocks in tables([row] * 3, chunk=8)] == [
        (3, [3, 0]), (3, [3, 0]), (3, [3, 0])
    ]  # fmt: skip
    assert "elements in a tensor" in KernelSteps("cpu", lambda *launch: None, chunk=4)._lack(
        row, row[0].device, "f32"
    )


def test_reason_for_plain_torch_is_logged_once(kernels, caplog):
    log_fallback.cache_clear()
    of_width: Any = KernelQuantizerFunctions("cpu", kernels.launch)
    op: Any = KernelQuantizerFunctions("cpu", kernels.launch, lambda tensor: "it rests")
    steps = KernelSteps("cpu", kernels.launch, lambda tensor: "it rests")
    with caplog.at_level("INFO", "accel_core"):
        for _ in range(3):
            of_width.quantize(torch.randn(4, 4), 4, 8, 0)
            found = op.quantize(torch.ones(2, 8), 2, 8, 0)
            op.dequantize(*found, 2, 8, 0)
            op.quantized_reduction(*found, 2, 1, 8, 0, 2)
            steps.adam(some(), ADAM)
    assert not kernels.launched
    reasons = [message.rpartition(": ")[2] for message in caplog.messages]
    assert reasons == ["groups of 4 elements, no multiple of 8", "it rests", "it rests"]
    assert quantizer_kernels.lack_of_width(2**34, 2**31, 8) == "2147483648 groups, more than 2147483647"
    assert not quantizer_kernels.lack_of_width(2**34 - 8, 2**31 - 1, 8)


def test_autograd_sees_that_parameters_have_changed(steps):
    parameter = torch.nn.Parameter(torch.ones(3))
    loss = (parameter * parameter).sum()
    lists = [[torch.ones(3)], [parameter], [torch.zeros(3)]]
    steps.multi_tensor_lion(2048, torch.zeros(1), lists, 0.1, 0.9, 0.99, 1, 0.0)
    assert parameter.tolist() == pytest.approx([0.9] * 3)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


def quantizations(kernels: HostKernels, count: int) -> None:
    op, cases = KernelQuantizerFunctions("cpu", with_any_threads(kernels)), random_cases.CASES
    for number in range(count):
        cases[number % len(cases)](op, random.Random(f"fault {number}"), unit=8)


def optimizer_steps(kernels: HostKernels, count: int) -> None:
    draw, cases = random.Random("fault"), step_cases.CASES
    for number in range(count):
        made = KernelSteps("cpu", with_any_threads(kernels), chunk=draw.choice([8, 32, 4096]))
        cases[number % len(cases)](made, draw)


@pytest.mark.parametrize("count", [300, pytest.param(2500, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("cases", "names"),
    [(quantizations, quantizer_kernels.ARGUMENTS), (optimizer_steps, step_kernels.ARGUMENTS)],
)
def test_random_cases_are_right(kernels, cases, names, count):
    cases(kernels, count)
    assert set(kernels.launched) == set(names)
    assert len(kernels.launched) > count / 2


@pytest.mark.slow
@pytest.mark.parametrize("cases", [quantizations, optimizer_steps])
def test_kernels_are_clean_under_the_sanitizers(cases, tmp_path):
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from accel_sim.driver import trials\n"
        "from tests import test_kernels as faults\n"
        "kernels = faults.HostKernels(faults.packed_arguments, flags=trials.SANITIZED)\n"
        f"faults.{cases.__name__}(kernels, 120)\n"
        "print(len(kernels.launched), 'kernels')\n"
    )
    done = run_sanitized(program, tmp_path)
    if done is None:
        pytest.skip("not run: the compiler has no sanitizers")
    assert not done.returncode, done.stderr[-3000:]
    assert int(done.stdout.split()[0]) >= 100


def test_sources_of_the_kernels_are_part_of_the_key(tmp_path):
    planted(tmp_path / "include", "level = round_even(", "level = truncf(")
    assert source(tmp_path / "include").key() != source().key()


PROGRAM = """
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#define ACCEL_DEVICE inline
#include "accel/reciprocal.h"

static uint32_t bits(float value) { uint32_t made; std::memcpy(&made, &value, 4); return made; }
static float number(uint32_t bits) { float made; std::memcpy(&made, &bits, 4); return made; }
static bool wrong(int exponent, uint32_t of, int off) {
  const accel::Parts parts = accel::parts_of(of);
  const float guess = 0x1p47f / static_cast<float>(parts.significand) + static_cast<float>(off);
  return accel::power_over_bits(exponent, parts, guess) != bits(static_cast<float>(1 << exponent) / number(of));
}

int main(int, char** arguments) {
  const uint32_t stride = std::atoi(arguments[1]);
  long cases = 0, errors = 0;
  for (uint32_t significand = 0; significand < 1u << 23; significand += stride)
    for (int off = -4; off <= 4; ++off, ++cases) errors += wrong(0, significand | 0x3f800000u, off);
  std::mt19937 draw(1);
  const int exponents[] = {0, 3, 4, 7, 8};
  for (uint32_t i = 0; i < 30000000u / stride; ++i, ++cases) {
    uint32_t of = draw() % 0x7f800000u;
    if (i % 3 == 1) of = 0x7e000000u + draw() % 0x1800000u; // results near zero and denormal
    if (i % 3 == 2) of = draw() % 0x1800000u; // numbers near zero and denormal
    if (of) errors += wrong(exponents[draw() % 5], of, static_cast<int>(draw() % 9) - 4);
  }
  std::printf("%ld of %ld\\n", errors, cases);
}
"""


@pytest.mark.parametrize(
    ("stride", "least"), [(97, 1_000_000), pytest.param(1, 9 * 2**23, marks=pytest.mark.slow)]
)
def test_quotients_are_those_of_the_host(tmp_path, stride, least):
    """A million of them, or those of every significand."""
    (tmp_path / "program.cpp").write_text(PROGRAM, "utf-8")
    headers = shared.folder("csrc") / "include"
    command = [*compiler.find(), "-O2", "-std=c++17", f"-I{headers}", str(tmp_path / "program.cpp")]
    subprocess.run([*command, "-o", str(tmp_path / "program")], check=True, capture_output=True)
    done = subprocess.run(
        [str(tmp_path / "program"), str(stride)], check=True, capture_output=True, text=True
    )
    wrong, cases = map(int, done.stdout.split(" of "))
    assert wrong == 0
    assert cases > least
