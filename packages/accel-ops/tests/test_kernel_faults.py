# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Faults that are planted in the source of the device kernels: the random cases notice each."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from accel_ops.kernel_builders import packed_arguments
from accel_ops.quantizer_kernels import KernelQuantizerFunctions
from accel_ops.step_kernels import KernelSteps
from accel_sim.driver import HostKernels, KernelFault, source
from accel_sim.driver.trials import planted, run_sanitized, with_any_threads

from .optimizers import step_cases
from .quantizer import test_random_cases


def quantizations(kernels: HostKernels, count: int) -> None:
    op, cases = KernelQuantizerFunctions("cpu", with_any_threads(kernels)), test_random_cases.CASES
    for number in range(count):
        cases[number % len(cases)](op, random.Random(f"fault {number}"), unit=8)


def steps(kernels: HostKernels, count: int) -> None:
    draw, cases = random.Random("fault"), step_cases.CASES
    for number in range(count):
        made = KernelSteps("cpu", with_any_threads(kernels), chunk=draw.choice([8, 32, 4096]))
        cases[number % len(cases)](made, draw)


#: By the cases that notice it: what is wrong, and the text that makes it so.
FAULTS: dict[Callable[..., None], dict[str, tuple[str, str]]] = {
    quantizations: {
        "no barrier before shared memory is written again": (
            "  barrier(); // a call before this one may still read\n", ""
        ),
        "no barrier before shared memory is read": (
            "warps[item() / width] = value;\n  barrier();", "warps[item() / width] = value;"
        ),
        "a barrier that some threads do not reach": (
            "if (item() % width == 0) warps[item() / width] = value;\n  barrier();",
            "if (item() % width == 0) { warps[item() / width] = value; barrier(); }",
        ),
        "a shuffle of wrong lanes": ("uint32_t mask = width / 2;", "uint32_t mask = width / 4;"),
        "a lane that the warp does not have": ("uint32_t mask = width / 2;", "uint32_t mask = width;"),
        "the maximum of the first warp alone": ("warp < items() / width", "warp < 1"),
        "one warp writes its maximum": ("if (item() % width == 0) warps", "if (item() == 0) warps"),
        "the minimum of a thread alone": ("if (asymmetric) negated = group_max(negated);", ""),
        "truncation": ("level = round_even(", "level = truncf("),
        "halves rounded away from zero": ("level = round_even(", "level = roundf("),
        "a limit one too high": (
            "level >= limit - 1 ? limit - 1 :", "level >= limit ? limit :"
        ),
        "NaN below all numbers": ("value != value ? 0xffffffffu :", "value != value ? 0u :"),
        "the scale in place of the step": ("return {scale, power_over(0, scale),", "return {scale, scale,"),
        "halves of a byte exchanged": ("(k % 2 * 4) & 15", "((k + 1) % 2 * 4) & 15"),
        "no sign of 4 bits": ("& 15) ^ 8) - 8;", "& 15));"),
        "parameters of the next group": (
            "static_cast<uint32_t>(i) / static_cast<uint32_t>(width)",
            "static_cast<uint32_t>(i + kPack) / static_cast<uint32_t>(width)",
        ),
        "nodes and devices exchanged": (
            "((slice * devices + device) * nodes + node)", "((slice * nodes + node) * devices + device)"
        ),
        "the first device's integers for all": ("at = device * size + i;", "at = i;"),
        "the first device's parameters for all": ("at / in_width * (asym", "i / in_width * (asym"),
        "every second round left out": (
            "static_cast<int64_t>(items()) * kPack;\n  for", "static_cast<int64_t>(items()) * kPack * 2;\n  for"
        ),
        "weights of errors exchanged": ("at(i) * beta + missed * rest", "at(i) * rest + missed * beta"),
        "errors of another type": ("type == 1 ? Float16::store", "type == 2 ? Float16::store"),
        "errors of the order before": ("errors.update(to * width", "errors.update(from * width"),
        "an error that is not finite is kept": ("finite ? mean : 0.0f", "mean"),
    },
    steps: {
        "a block too late": ("group() >= table.end[t]", "group() > table.end[t]"),
        "blocks counted from the first tensor": ("group() - (t ? table.end[t - 1] : 0)", "group()"),
        "the smallest tensor's size for all": ("last < table.size[t] ? last : table.size[t]", "table.size[t] / 2"),
        "no elements after the last pack": (
            "for (; i < end; i += stride) {", "for (; i + kStepPack <= end; i += stride) {"
        ),
        "every second round left out": (
            "static_cast<int64_t>(items()) * kStepPack;", "static_cast<int64_t>(items()) * kStepPack * 2;"
        ),
        "the first moment for both": ("table.at[2 + s][t]", "table.at[2][t]"),
        "gradients read as parameters": ("G::load(g.at[k])", "P::load(g.at[k])"),
        "states of a pack are not written": ("state[s] + i) = m[s];", "state[s] + i);"),
        "the second moment of a number, not its square": ("rest2 * (g * g);\n    p", "rest2 * g;\n    p"),
        "no correction of the second moment": ("sqrtf(v) * root_correction", "sqrtf(v)"),
        "epsilon under the root": ("sqrtf(v) * root_correction + eps", "sqrtf(v + eps) * root_correction"),
        "decay forgotten": ("keep * p - step_size", "p - step_size"),
        "weights of Lion's means exchanged": ("c = beta1 * m + rest1 * g", "c = beta2 * m + rest2 * g"),
        "a sign of zero": ("c > 0.0f ? 1.0f", "c >= 0.0f ? 1.0f"),
        "NaN hidden": ("c == 0.0f ? at_zero : c;", "c == 0.0f ? at_zero : 0.0f;"),
    },
}  # fmt: skip
QUICK = ("truncation", "no elements after the last pack")


def given(cases: Callable[..., None], fault: str) -> object:
    marks = () if fault in QUICK else pytest.mark.slow
    return pytest.param(cases, *FAULTS[cases][fault], id=f"{cases.__name__}-{fault}", marks=marks)


@pytest.mark.parametrize(
    ("cases", "right", "wrong"), [given(cases, fault) for cases, faults in FAULTS.items() for fault in faults]
)
def test_planted_fault_is_noticed(
    cases: Callable[..., None], right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(tmp_path / "include", right, wrong)
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "cache"))
    kernels = HostKernels(packed_arguments, headers=tmp_path / "include", flags=("-O0",))
    with pytest.raises((AssertionError, KernelFault)):
        cases(kernels, 200)


@pytest.mark.slow
@pytest.mark.parametrize("cases", FAULTS)
def test_kernels_are_clean_under_the_sanitizers(cases: Callable[..., None], tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from accel_sim.driver import trials\n"
        "from tests import test_kernel_faults as faults\n"
        "kernels = faults.HostKernels(faults.packed_arguments, flags=trials.SANITIZED)\n"
        f"faults.{cases.__name__}(kernels, 120)\n"
        "print(len(kernels.launched), 'kernels')\n"
    )
    done = run_sanitized(program, tmp_path)
    if done is None:
        pytest.skip("not run: the compiler has no sanitizers")
    assert not done.returncode, done.stderr[-3000:]
    assert int(done.stdout.split()[0]) >= 100


def test_sources_of_the_kernels_are_part_of_the_key(tmp_path: Path) -> None:
    planted(tmp_path / "include", *FAULTS[quantizations]["truncation"])
    assert source(tmp_path / "include").key() != source().key()
