# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The interface of the installed DeepSpeed, met member by member."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream


_MEMBERS = """
    import inspect, json, accel_core
    Ours = accel_core.DeepSpeedAccelerator
    own = set(dir(Ours))  # before the bridge adds anything
    import deepspeed
    from deepspeed.accelerator import DeepSpeedAccelerator as Upstream
    from deepspeed.accelerator.real_accelerator import _validate_accelerator
    from deepspeed.ops.op_builder.builder import OpBuilder
    wrong = [f"{name} is missing" for name in Upstream.__abstractmethods__ - own]
    for name, member in inspect.getmembers(Upstream, inspect.isfunction):
        ours = inspect.signature(getattr(Ours, name)).parameters
        if not any(p.kind is p.VAR_POSITIONAL for p in ours.values()):
            wrong += [f"{name} lacks {p}" for p in inspect.signature(member).parameters if p not in ours]
    for name, member in vars(Upstream).items():
        ours = inspect.getattr_static(Ours, name)
        if name[:2] != "__" and name != "_abc_impl":
            if isinstance(ours, property) != isinstance(member, property) or callable(ours) != callable(member):
                wrong.append(f"{name} is a {type(ours).__name__}")
    accel = accel_core.get_accelerator()
    wrong += [f"{name} is not added" for name in dir(Upstream) if not hasattr(accel, name)]
    assert issubclass(Ours, Upstream) and isinstance(accel, Upstream) and Upstream not in type(accel).__mro__
    _validate_accelerator(accel)
    assert isinstance(accel.create_op_builder("FusedAdamBuilder"), OpBuilder)
    if hasattr(Upstream, "_shape_numel"):  # 0.19: a static method
        assert accel._shape_numel((2, 3)) == 6
    # A property's AttributeError stays what it is.
    class Broken(type(accel)):
        @property
        def Stream(self):
            raise AttributeError("the driver has no streams")
    try:
        Broken().Stream
    except AttributeError as error:
        assert str(error) == "the driver has no streams"
    print(json.dumps(wrong))
"""


def test_each_member_of_upstreams_interface_is_ours_with_its_kind_and_parameters(
    children: Any, toy: Path
) -> None:
    assert children.run(_MEMBERS, [toy]).report == []


def test_ds_report_prints_our_table(children: Any, toy: Path) -> None:
    said = children.run(
        "import sys, runpy; sys.argv = ['ds_report']; runpy.run_module('deepspeed.env_report', run_name='__main__')",
        [toy],
    )
    assert "fused_adam" in said.out
    assert "OKAY" in next(line for line in said.out.splitlines() if line.startswith("fused_adam"))
    assert "cpu_adam" not in said.out
    assert "deepspeed info" in said.out
    assert children.compiled() == []


_PAST_THE_TABLE = """
import ast, importlib, json
from pathlib import Path
import deepspeed
from accel_core.upstream.ops import Forwarding

root = Path(deepspeed.__file__).parent
found = {}
for file in root.rglob("*.py"):
    place = ".".join(("deepspeed", *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
    text = file.read_text("utf-8")
    if place.startswith(("deepspeed.ops.op_builder.", "deepspeed.accelerator.")) or "op_builder." not in text:
        continue
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and "op_builder." in (node.module or ""):
            for name in (alias.name for alias in node.names if alias.name.endswith("Builder")):
                found[f"{place}:{name}"] = type(getattr(importlib.import_module(place), name)) is Forwarding
try:
    deepspeed.compile.util.get_deepcompile_handle()
except NotImplementedError as error:
    print(json.dumps([found, str(error)]))
"""


def test_no_module_of_deepspeed_has_a_builder_past_the_table(children: Any, toy: Path) -> None:
    found, error = children.run(_PAST_THE_TABLE, [toy]).report
    assert "deepspeed.compile.util:DeepCompileBuilder" in found
    assert all(found.values()), found
    assert "DeepCompileBuilder cannot be loaded" in error
    assert children.compiled() == []
