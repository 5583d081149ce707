# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The interface of the installed DeepSpeed, met member by member."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream


def test_no_abstract_method_of_upstreams_is_missing(children: Any, toy: Path) -> None:
    missing = children.run(
        """
        import json, accel_core
        ours = set(dir(accel_core.DeepSpeedAccelerator))  # before the bridge adds anything
        from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator as Upstream
        print(json.dumps(sorted(Upstream.__abstractmethods__ - ours)))
        """,
        [toy],
    ).report
    assert missing == []


def test_every_parameter_of_upstreams_methods_is_one_of_ours(children: Any, toy: Path) -> None:
    refused = children.run(
        """
        import inspect, json, accel_core
        from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator as Upstream
        refused = []
        for name, member in inspect.getmembers(Upstream, inspect.isfunction):
            ours = inspect.signature(getattr(accel_core.DeepSpeedAccelerator, name)).parameters
            star = any(p.kind is p.VAR_POSITIONAL for p in ours.values())
            theirs = list(inspect.signature(member).parameters.values())
            refused += [f"{name}({p.name})" for p in theirs if p.name not in ours and not star]
        print(json.dumps(refused))
        """,
        [toy],
    ).report
    assert refused == []


def test_properties_are_properties_and_methods_are_methods(children: Any, toy: Path) -> None:
    children.run(
        """
        import inspect, accel_core
        from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator as Upstream
        for name, member in vars(Upstream).items():
            ours = inspect.getattr_static(accel_core.DeepSpeedAccelerator, name)
            if name[:2] != "__" and name != "_abc_impl":
                assert isinstance(ours, property) == isinstance(member, property), name
                assert callable(ours) == callable(member), name
        """,
        [toy],
    )


def test_our_interface_is_a_virtual_subclass_of_upstreams(children: Any, toy: Path) -> None:
    children.run(
        """
        import accel_core, deepspeed
        from deepspeed.accelerator import DeepSpeedAccelerator as Upstream
        from deepspeed.accelerator.real_accelerator import _validate_accelerator
        from deepspeed.ops.op_builder.builder import OpBuilder
        accel = accel_core.get_accelerator()
        assert issubclass(accel_core.DeepSpeedAccelerator, Upstream)
        assert isinstance(accel, Upstream)
        _validate_accelerator(accel)
        assert Upstream not in type(accel).__mro__
        assert isinstance(accel.create_op_builder("FusedAdamBuilder"), OpBuilder)
        """,
        [toy],
    )


def test_concrete_members_that_only_upstream_has_work_on_ours(children: Any, toy: Path) -> None:
    children.run(
        """
        import accel_core, deepspeed
        from deepspeed.accelerator import DeepSpeedAccelerator as Upstream
        accel = accel_core.get_accelerator()
        assert [name for name in dir(Upstream) if not hasattr(accel, name)] == []
        if hasattr(Upstream, "_shape_numel"):  # 0.19: a static method
            assert accel._shape_numel((2, 3)) == 6
        if hasattr(Upstream, "is_fp64_supported"):
            assert accel.is_fp64_supported() is True
        # A property's AttributeError stays what it is.
        class Broken(type(accel)):
            @property
            def Stream(self):
                raise AttributeError("the driver has no streams")
        try:
            Broken().Stream
        except AttributeError as error:
            assert str(error) == "the driver has no streams"
        """,
        [toy],
    )


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
