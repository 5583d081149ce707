# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Faults of DeepSpeed that are fixed: losses are those of plain torch on one process. Stock ones are in docs/issues."""

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

pytestmark = pytest.mark.upstream
VERSION = Version(importlib.metadata.version("deepspeed"))
needs_019 = pytest.mark.skipif(
    Version("0.19") > VERSION, reason="not run: deepspeed >= 0.19, which has the faults"
)


def _cases() -> list[str]:
    names = ["plain", "dynamic shapes", "reset shapes", "seeds"]
    if (
        Version("0.19") <= VERSION
    ):  # 0.18 checkpoints activations on devices with streams only, and has no DualPipeV
        names += ["checkpoints", "checkpointed embedding", "DualPipeV"]
    return names


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_pipeline_of_tuples_matches_torch(children, tmp_path, ranks):
    store = str(tmp_path / "store")
    reports = children.ranks(f"import pipelines; pipelines.main({store!r}, {_cases()!r})", ranks)
    for report in reports:
        for name, (losses, expected) in report.items():
            assert losses == pytest.approx(expected, rel=1e-5), name


@needs_019
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_parameters_of_any_shape_match_torch(children, tmp_path, ranks):
    store = str(tmp_path / "store")
    for expected, found in children.ranks(f"import shapes; shapes.main({store!r})", ranks):
        assert len(found) == 8
        for name, losses in found.items():
            assert losses == pytest.approx(expected, rel=0.05 if "bf16" in name else 1e-5), name


@needs_019
@pytest.mark.slow
def test_experts_match_those_of_one_rank(children, tmp_path):
    alone: dict[str, Any] = {}
    for ranks, shared in {1: 1, 2: 2, 3: 3, 4: 2}.items():  # so many ranks share the experts
        program = f"import shapes; shapes.experts({str(tmp_path / str(ranks))!r}, {shared})"
        for found in children.ranks(program, ranks):
            alone = alone or found
            for name, losses in found.items():
                assert losses == pytest.approx(alone[name], rel=0.02 if "bf16" in name else 1e-5), (
                    ranks,
                    name,
                )
                assert losses[-1] < losses[0], name


@needs_019
@pytest.mark.parametrize("ranks", [3, 4])
@pytest.mark.parametrize("way", ["sequence", "tensor"])
@pytest.mark.sample("tensor-3")
def test_divided_layers_match_torch(children, tmp_path, way, ranks):
    store = str(tmp_path / "store")
    for expected, found in children.ranks(f"import parallel; parallel.main({store!r}, {way!r})", ranks):
        for name, losses in found.items():
            assert losses == pytest.approx(expected, rel=1e-5), name


@needs_019
def test_the_comms_logger_times_each_operation_and_goes_on(children):
    """In the program that shows the fault without the fix."""
    program = Path(__file__).parents[3] / "docs/issues/the_comms_logger_ends_the_process.py"
    out = children.run(program.read_text("utf-8"), DS_ACCELERATOR="cpu").out
    assert "took longer than the program: False" in out
    assert out.splitlines()[-1] == "the program goes on"
