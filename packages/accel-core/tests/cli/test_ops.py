# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel ops`: what is served, whether it loads, and whether it computes the right thing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accel_core.errors import OpFailed
from accel_core.op_builder import fused, self_test

HOST = torch.device("cpu")

OPS = """
import os
from accel_core.op_builder import fused

class FusedAdamBuilder(fused.FusedAdamBuilder):
    loaded = False

    def compatibility(self):
        return True, "plain torch: it did not compile" if self.loaded else "to be compiled when first used"

    def load(self, verbose=True):
        self.loaded = True
        return super().load()

class FusedLionBuilder(fused.FusedLionBuilder):
    def load(self, verbose=True):
        os.abort()

class FusedLambBuilder(fused.FusedLambBuilder):
    def load(self, verbose=True):
        raise OSError("libodd.so: cannot open shared object file")
"""
VENDOR = """
import torch
from accel_core.op_builder import OpTable
from accel_core.device import TorchDeviceAccelerator
from accel_core.vendor import Confirmation, Evidence, Vendor

VENDOR = Vendor(
    key="odd", interface=2, accelerator="odd_vendor:Odd", probe="odd_vendor", priority=1,
    distribution="accel-odd", requires="odd",
)

def evidence():
    return Evidence(True, True, "always here")

def confirm():
    return Confirmation(1, "one device")

class Odd(TorchDeviceAccelerator):
    def __init__(self):
        names = ("FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder")
        table = OpTable("odd_ops", {name: f"odd_ops:{name}" for name in names})
        super().__init__("cpu", collectives="gloo", ops=table)

Odd.__abstractmethods__ = frozenset()
"""


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A vendor with an op that works, one that crashes, and one whose library is missing."""
    (tmp_path / "odd_vendor.py").write_text(dedent(VENDOR))
    (tmp_path / "odd_ops.py").write_text(dedent(OPS))
    info = tmp_path / "accel_odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: accel-odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[accel.vendors]\nodd = odd_vendor:VENDOR\n")
    return tmp_path


def ops(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "DS_ACCELERATOR": "odd"}
    command = [sys.executable, "-m", "accel_core.cli", "ops", *arguments, "--json"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return ended.returncode, {row["builder"]: row for row in json.loads(ended.stdout)["ops"]}


def test_list_names_what_is_served_and_why_the_rest_is_not(odd: Path) -> None:
    status, rows = ops(odd, "list")
    assert status == 0
    assert [name for name, row in rows.items() if row["state"] == "served"] == [
        "FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder",
    ]  # fmt: skip
    assert "nobody has written it" in rows["AsyncIOBuilder"]["reason"]


def test_where_an_op_came_from_is_said_as_it_is_after_loading(odd: Path) -> None:
    _, rows = ops(odd, "list")
    assert rows["FusedAdamBuilder"]["reason"] == "to be compiled when first used"
    for action, done in (("build", "loaded"), ("test", "loaded and run on a tiny input")):
        _, rows = ops(odd, action, "FusedAdamBuilder")
        assert rows["FusedAdamBuilder"]["reason"] == f"{done}; plain torch: it did not compile"


def test_each_op_is_tried_in_a_process_of_its_own(odd: Path) -> None:
    status, rows = ops(odd, "test", "FusedAdamBuilder", "FusedLionBuilder", "FusedLambBuilder")
    assert status == 1
    assert rows["FusedAdamBuilder"]["state"] == "ok"
    assert rows["FusedAdamBuilder"]["reason"].startswith("loaded and run on a tiny input")
    assert "SIGABRT" in rows["FusedLionBuilder"]["reason"]
    assert rows["FusedLambBuilder"]["state"] == "failed"
    assert "libodd.so" in rows["FusedLambBuilder"]["reason"]


def test_build_loads_and_runs_nothing(odd: Path) -> None:
    status, rows = ops(odd, "build", "FusedAdamBuilder")
    assert status == 0
    assert rows["FusedAdamBuilder"]["reason"].startswith("loaded; ")
    assert rows["FusedAdamBuilder"]["seconds"] >= 0


def test_a_builder_that_does_not_exist_is_an_error_with_those_that_do() -> None:
    command = [sys.executable, "-m", "accel_core.cli", "ops", "list", "FusedAdam"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "no builder 'FusedAdam'; there are AsyncIOBuilder" in ended.stderr


@pytest.mark.parametrize("builder", [fused.FusedAdamBuilder, fused.FusedLambBuilder, fused.FusedLionBuilder])
def test_plain_torch_s_optimizers_pass_the_self_test(builder: Any) -> None:
    assert self_test.run(builder.NAME, builder().load(), HOST) == "loaded and run on a tiny input"


def test_an_op_that_computes_something_wrong_fails_the_exercise() -> None:
    def adds(chunk: int, flag: object, lists: list[list[torch.Tensor]], lr: float, *_: object) -> None:
        lists[1][0].add_(lr)

    with pytest.raises(OpFailed, match="ACC-405"):
        self_test.run("fused_adam", SimpleNamespace(multi_tensor_adam=adds), HOST)


def test_an_op_without_a_known_input_is_said_to_be_only_loaded() -> None:
    assert self_test.run("transformer", object(), HOST) == "loaded; no tiny input is known for it"
