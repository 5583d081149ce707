# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""With gradients on a (simulated) device, fused steps and transfers in pieces leave the losses of stock DeepSpeed."""

from pathlib import Path
from typing import Any

from shared.children import on_device

PROGRAMS = Path(__file__).parents[2] / "packages" / "accel-zero" / "tests" / "programs"
_COMMON = {"clip": 0.5, "optimizer": "AdamW"}
_PINNED = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
CASES: list[dict[str, Any]] = [
    {**_COMMON, "stage": 2, "dtype": "bf16", "accumulation": 1, "zero": _PINNED},
    {**_COMMON, "stage": 1, "dtype": "fp16", "accumulation": 2},
    {**_COMMON, "stage": 3, "dtype": "bf16", "accumulation": 1, "zero": {"offload_param": {"device": "cpu"}}},
]


def test_losses_on_a_device_are_those_of_stock_deepspeed(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(PROGRAMS)!r})\n"
        "from accel_ops.optimizers import host; host.PIECE = 1000\n"
        f"import offload; offload.main({str(tmp_path / 'store')!r}, {CASES!r}, 4)"
    )
    one_rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    report = on_device("npu", "-c", program, **one_rank).report
    for case, (stock, replaced, fused, norms) in zip(CASES, report, strict=True):
        assert replaced == stock, case
        assert fused, case
        assert norms == 0, case  # the device computes them
