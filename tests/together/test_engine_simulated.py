# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""On a (simulated) device, the replaced methods of ZeRO's engine and offload leave what stock DeepSpeed computes."""

from pathlib import Path
from typing import Any

from shared.children import on_device

PROGRAMS = Path(__file__).parents[2] / "packages" / "accel-zero" / "tests" / "programs"
_COMMON = {"clip": 0.5, "optimizer": "AdamW"}
_PINNED = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}


def compared(program: str) -> Any:
    """Return what a program of accel-zero's tests reports on one rank with an npu."""
    one_rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    path = f"import sys; sys.path.insert(0, {str(PROGRAMS)!r})\n"
    return on_device("npu", "-c", path + program, **one_rank).report


def test_training_on_device_has_stock_bits(tmp_path: Path) -> None:
    cases: list[dict[str, Any]] = [
        {"stage": 2, "dtype": "bf16", "accumulation": 2, "clip": 0.5, "overflow": True, "limits": (600, 300)},
        {"stage": 1, "dtype": "fp16", "clip": 0.1, "groups": True},
        {"stage": 0, "dtype": "bf16", "clip": 0.5, "overflow": True},
        {"stage": 3, "dtype": "bf16", "clip": 0.5, "zero": {"stage3_param_persistence_threshold": 100}},
    ]
    report = compared(f"import engine_bits; engine_bits.main({str(tmp_path / 'store')!r}, {cases!r})")
    for case, (stock, ours, used) in zip(cases, report, strict=True):
        assert ours == stock, case
        assert used is (case["stage"] > 0), case


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
