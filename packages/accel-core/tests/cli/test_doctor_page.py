# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""docs/doctor.md documents what the doctor prints."""

import json
import re
from pathlib import Path
from typing import Any

from accel_core.cli.doctor import advice
from accel_core.selection.candidates import State

PAGE = (Path(__file__).resolve().parents[4] / "docs/doctor.md").read_text(encoding="utf-8")


def shape(value: Any) -> Any:
    """The document without its values; a list by its first element."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def test_the_json_of_the_page_has_the_shape_of_the_real_one(bare: Any) -> None:
    bare.torch()
    bare.deepspeed()
    bare.cpu()
    points = {"accel.deepspeed_patch_status": {"offload": "toy_patches:rows"}}
    bare.distribution("toy-patches", entry_points=points)
    bare.module("toy_patches.py", "def rows(): return [('zero3-step', True, 'reason')]")
    bare.vendor("toy", devices=0, requires_dist=("torch>=2.14",))
    (block,) = re.findall(r"^```json\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL)
    report = bare.doctor().report
    report["candidates"] = [candidate for candidate in report["candidates"] if candidate["label"] == "cpu"]
    assert shape(json.loads(block)) == shape(report)


def test_every_code_and_every_state_is_reported() -> None:
    source = Path(advice.__file__).read_text(encoding="utf-8")
    codes = set(re.findall(r'Remark\(\s*"([a-z-]+)"', source))
    assert len(codes) > 15
    rows = set(re.findall(r"^\| `?([a-z-]+)`? \|", PAGE, re.MULTILINE)) - {"code", "state", "---"}
    states = {state.value for state in State} - {State.PENDING.value}
    assert rows == codes | states
