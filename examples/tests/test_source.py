# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The promise of the example: no device name stands in it, not even in a comment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent
NAMES = "cuda|xpu|npu|hpu|mlu|sdaa|mps|cpu|gpu|nccl|gloo"
DEVICES = re.compile(rf"(?<![a-z0-9])({NAMES})(?![a-z0-9])", re.IGNORECASE)
ALLOWED = re.compile(r"os\.cpu_count|train_micro_batch_size_per_gpu")  # names that Python and DeepSpeed gave
SOURCES = [path for part in ("", "byte_lm/", "sharded_lm/") for path in EXAMPLES.glob(f"{part}*.py")]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_device_is_named(source: Path) -> None:
    text = ALLOWED.sub("", source.read_text(encoding="utf-8"))
    assert DEVICES.findall(text) == []


def test_the_check_sees_names_in_all_disguises() -> None:
    disguises = (
        "torch.cuda.empty_cache()",
        'x.to("cpu")',
        "x.npu()",
        'f"mps:{i}"',
        "USE_HPU",
        "is_xpu_there",
    )
    assert [line for line in disguises if not DEVICES.search(line)] == []
