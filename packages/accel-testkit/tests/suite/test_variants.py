# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The suite can fail: every broken variant is noticed by the checks meant for it."""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import accel_sim
from accel_core import processes
from accel_sim import build

PRETEND = Path(__file__).with_name("pretend")


def test_variant_fails_its_checks(variant: Any, run_variant: Any) -> None:
    outcome = run_variant(variant)
    if "*" in variant.fails:
        assert not outcome.ids("passed")
    else:
        assert not variant.unnoticed(outcome.ids("failed"))


@pytest.mark.slow
def test_variants_are_noticed_on_a_simulated_device(tmp_path, monkeypatch) -> None:
    build.library()
    out = tmp_path / "failed.json"
    own = {"PYTHONPATH": str(PRETEND), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = processes.run(
        [sys.executable, "-c", f"import simulated; simulated.main({str(out)!r})"],
        env=accel_sim.environment("npu", base={**os.environ, **own}),
        cwd=tmp_path,
    )
    assert out.is_file(), done.stdout[-2000:] + done.stderr[-2000:]
    answer = json.loads(out.read_text(encoding="utf-8"))
    assert answer["control"] == []
    assert {name: checks for name, checks in answer["unnoticed"].items() if checks} == {}
    monkeypatch.syspath_prepend(PRETEND)
    needed = importlib.import_module("broken").NEEDS_DEVICE_MEMORY
    assert needed - {*answer["proved"]} == set()
