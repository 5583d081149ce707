# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""On a (simulated) device, the replaced methods of ZeRO's engine and offload leave what stock DeepSpeed computes."""

from pathlib import Path
from typing import Any

import pytest

from shared.children import on_device

PROGRAMS = Path(__file__).parents[2] / "packages" / "accel-zero" / "tests" / "programs"
_COMMON = {"clip": 0.5, "optimizer": "AdamW"}
_PINNED = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
KEYS = ("cuda", "hpu", "klxpu", "mlu", "mps", "npu", "sdaa", "supa", "xpu")
MODES = ("ACCEL_SIM_DEFER", "ACCEL_SIM_RACE")
RUNS = [pytest.param(key, mode, marks=pytest.mark.slow) for key in KEYS for mode in MODES]
RUNS.append(pytest.param("npu", "ACCEL_SIM_STRICT"))  # the default


def compared(program: str, key: str = "npu", **mode: str) -> Any:
    """Return what a program of accel-zero's tests reports on one rank with a device."""
    one_rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    path = f"import sys; sys.path.insert(0, {str(PROGRAMS)!r})\n"
    return on_device(key, "-c", path + program, **one_rank, **mode).report


@pytest.mark.parametrize(("key", "mode"), RUNS)
def test_training_on_device_has_stock_bits(key: str, mode: str, tmp_path: Path) -> None:
    cases: list[dict[str, Any]] = [
        {"stage": 2, "dtype": "bf16", "accumulation": 2, "clip": 0.5, "overflow": True, "limits": (600, 300)},
        {"stage": 1, "dtype": "fp16", "clip": 0.1, "groups": True},
        {"stage": 0, "dtype": "bf16", "clip": 0.5, "overflow": True},
        {"stage": 3, "dtype": "bf16", "clip": 0.5, "zero": {"stage3_param_persistence_threshold": 100}},
    ]
    report = compared(
        f"import engine_bits; engine_bits.main({str(tmp_path / 'store')!r}, {cases!r})", key, **{mode: "1"}
    )
    for case, (stock, ours, used) in zip(cases, report, strict=True):
        assert ours == stock, case
        assert used is (case["stage"] > 0), case


def test_replaced_methods_launch_and_wait_less(tmp_path: Path) -> None:
    program = f"import engine_bits as e; e.count({str(tmp_path / 'store')!r}, e.Launches)"
    for stage, (stock, ours) in compared(program, ACCEL_SIM_DEFER="1").items():
        assert all(mine <= theirs for mine, theirs in zip(ours, stock, strict=True)), stage


def test_losses_with_offload_are_those_of_stock_deepspeed(tmp_path: Path) -> None:
    cases: list[dict[str, Any]] = [
        {**_COMMON, "stage": 2, "dtype": "bf16", "accumulation": 1, "zero": _PINNED},
        {**_COMMON, "stage": 1, "dtype": "fp16", "accumulation": 2},
        {
            **_COMMON, "stage": 3, "dtype": "bf16", "accumulation": 1,
            "zero": {"offload_param": {"device": "cpu"}},
        },
    ]  # fmt: skip
    report = compared(
        "from accel_ops.optimizers import host; host.PIECE = 1000\n"
        f"import offload; offload.main({str(tmp_path / 'store')!r}, {cases!r}, 4)"
    )
    for case, (stock, replaced, fused, norms) in zip(cases, report, strict=True):
        assert replaced == stock, case
        assert fused, case
        assert norms == 0, case  # the device computes them
