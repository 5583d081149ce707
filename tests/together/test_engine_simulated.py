# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""With parameters on a (simulated) device, the replaced methods of ZeRO's engine leave the bits of stock DeepSpeed."""

from pathlib import Path
from typing import Any

from shared.children import on_device

PROGRAMS = Path(__file__).parents[2] / "packages" / "accel-zero" / "tests" / "programs"
CASES: list[dict[str, Any]] = [
    {"stage": 2, "dtype": "bf16", "accumulation": 2, "clip": 0.5, "overflow": True, "limits": (600, 300)},
    {"stage": 1, "dtype": "fp16", "clip": 0.1, "groups": True},
    {"stage": 0, "dtype": "bf16", "clip": 0.5, "overflow": True},
    {"stage": 3, "dtype": "bf16", "clip": 0.5, "zero": {"stage3_param_persistence_threshold": 100}},
]


def test_training_on_device_has_stock_bits(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(PROGRAMS)!r})\n"
        f"import engine_bits; engine_bits.main({str(tmp_path / 'store')!r}, {CASES!r})"
    )
    one_rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    for case, (stock, ours, used) in zip(
        CASES, on_device("npu", "-c", program, **one_rank).report, strict=True
    ):
        assert ours == stock, case
        assert used is (case["stage"] > 0), case
