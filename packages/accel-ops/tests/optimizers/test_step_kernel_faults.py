# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Faults that are planted in the source of the optimizers' kernels: the random cases notice each."""

import random
from pathlib import Path

import pytest

from accel_ops.kernel_builders import packed_arguments
from accel_ops.step_kernels import KernelSteps
from accel_sim.driver import HostKernels, KernelFault
from accel_sim.driver.trials import planted, run_sanitized, with_any_threads

from .step_cases import CASES

#: What is wrong, and the text that makes it so.
FAULTS = {
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
}  # fmt: skip
QUICK = ("no elements after the last pack",)


def random_cases(kernels: HostKernels) -> None:
    draw = random.Random("fault")
    for number in range(100):
        steps = KernelSteps("cpu", with_any_threads(kernels), chunk=draw.choice([8, 32, 4096]))
        CASES[number % len(CASES)](steps, draw)


@pytest.mark.parametrize(
    "fault", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FAULTS]
)
def test_planted_fault_is_noticed(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(tmp_path / "include", *FAULTS[fault])
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "cache"))
    kernels = HostKernels(packed_arguments, headers=tmp_path / "include", flags=("-O0",))
    with pytest.raises((AssertionError, KernelFault)):
        random_cases(kernels)


@pytest.mark.slow
def test_kernels_are_clean_under_the_sanitizers(tmp_path: Path) -> None:
    program = (
        "import random, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from step_cases import CASES\n"
        "from accel_ops.kernel_builders import packed_arguments\n"
        "from accel_ops.step_kernels import KernelSteps\n"
        "from accel_sim.driver import HostKernels, trials\n"
        "kernels = HostKernels(packed_arguments, flags=trials.SANITIZED)\n"
        "draw = random.Random('sanitized')\n"
        "for number in range(100):\n"
        "    steps = KernelSteps('cpu', trials.with_any_threads(kernels), chunk=draw.choice([8, 32, 4096]))\n"
        "    CASES[number % len(CASES)](steps, draw)\n"
        "print(len(kernels.launched), 'kernels')\n"
    )
    done = run_sanitized(program, tmp_path)
    if done is None:
        pytest.skip("not run: the compiler has no sanitizers")
    assert not done.returncode, done.stderr[-3000:]
    assert int(done.stdout.split()[0]) >= 80
