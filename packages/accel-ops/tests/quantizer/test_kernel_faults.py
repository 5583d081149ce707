# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Faults that are planted in the kernels' source: the tests of random cases notice each."""

import random
from pathlib import Path
from typing import Any

import pytest

from accel_ops.kernel_builders import packed_arguments
from accel_ops.quantizer_kernels import KernelQuantizerFunctions
from accel_sim.driver import HostKernels, KernelFault, source
from accel_sim.driver.trials import planted, run_sanitized, with_any_threads

from .test_random_cases import CASES

#: What is wrong, and the text that makes it so.
FAULTS = {
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
}  # fmt: skip
QUICK = ("truncation",)


def random_cases(op: Any, count: int) -> None:
    for number in range(count):
        CASES[number % len(CASES)](op, random.Random(f"fault {number}"), unit=8)


@pytest.mark.parametrize(
    "fault", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FAULTS]
)
def test_planted_fault_is_noticed(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = FAULTS[fault]
    planted(tmp_path / "include", right, wrong)
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "cache"))
    kernels = HostKernels(packed_arguments, headers=tmp_path / "include", flags=("-O0",))
    op = KernelQuantizerFunctions("cpu", with_any_threads(kernels))
    with pytest.raises((AssertionError, KernelFault)):
        random_cases(op, 200)


@pytest.mark.slow
def test_kernels_are_clean_under_the_sanitizers(tmp_path: Path) -> None:
    program = (
        "import random, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from quantizer.test_random_cases import CASES\n"
        "from accel_ops.kernel_builders import packed_arguments\n"
        "from accel_ops.quantizer_kernels import KernelQuantizerFunctions\n"
        "from accel_sim.driver import HostKernels, trials\n"
        "kernels = HostKernels(packed_arguments, flags=trials.SANITIZED)\n"
        "op = KernelQuantizerFunctions('cpu', kernels.launch)\n"
        "for number in range(120):\n"
        "    CASES[number % len(CASES)](op, random.Random(f'sanitized {number}'), unit=8)\n"
        "print(len(kernels.launched), 'kernels')\n"
    )
    done = run_sanitized(program, tmp_path)
    if done is None:
        pytest.skip("not run: the compiler has no sanitizers")
    assert not done.returncode, done.stderr[-3000:]
    assert int(done.stdout.split()[0]) >= 120


def test_sources_of_the_kernels_are_part_of_the_key(tmp_path: Path) -> None:
    planted(tmp_path / "include", *FAULTS["truncation"])
    assert source(tmp_path / "include").key() != source().key()
