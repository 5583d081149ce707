# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Import hygiene: what `import torch`, `import accel_core` and `import deepspeed` may not do because of us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="not run: package torch")

_MODULES = "import json, sys, torch; print(json.dumps(sorted(sys.modules)))"
#: What a selection imports, whose doings are not ours.
_FIRST = "import json, torch, accel_toy.accelerator, accel_core.api, snapshot"
_OFF = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def test_import_torch_loads_at_most_fifteen_further_modules(children: Any, toy: Path) -> None:
    without = children.run(_MODULES, [toy], **_OFF).report
    further = sorted(set(children.run(_MODULES, [toy]).report) - set(without))
    assert "accel_core.activate" in further
    assert len(further) <= 15, further
    assert not [name for name in further if name.startswith(("wrapt", "accel_toy", "accel_core.upstream"))]


def test_import_torch_prints_nothing_and_starts_no_process(children: Any, toy: Path) -> None:
    quiet = children.run("import processes, torch\nassert processes.started == [], processes.started", [toy])
    assert (quiet.out, quiet.err) == ("", "")


def test_our_entry_point_changes_nothing_else_in_the_process(children: Any, toy: Path) -> None:
    changed = children.run(
        """
        import json, torch, snapshot
        from importlib.metadata import entry_points
        before = snapshot.take()
        ours = {point.value: point for point in entry_points(group="torch.backends") if point.name == "accel_core"}
        [point] = ours.values()
        point.load()()
        after = snapshot.take()
        print(json.dumps({fact: after[fact] for fact in after if after[fact] != before[fact]}))
        """,
        [toy],
        **_OFF,
    ).report
    assert changed == {}


def test_the_entry_point_selects_nothing(children: Any, toy: Path) -> None:
    # Selection would be heard of: this driver is broken.
    children.run(
        """
        import sys, torch
        from accel_core.api import CURRENT
        assert CURRENT.state() == (None, None)
        assert "accel_toy" not in sys.modules
        """,
        [toy],
        TOY_DEVICES="-1",
    )


def test_import_accel_core_imports_neither_torch_nor_a_vendor(children: Any, toy: Path) -> None:
    quiet = children.run(
        """
        import processes, sys, accel_core
        loaded = {name.partition(".")[0] for name in sys.modules}
        assert not loaded & {"torch", "deepspeed", "wrapt", "numpy", "accel_toy"}, loaded
        assert processes.started == []
        """,
        [toy],
    )
    assert (quiet.out, quiet.err) == ("", "")


def test_selection_changes_nothing_else_in_the_process(children: Any, toy: Path) -> None:
    changed = children.run(
        f"""
        {_FIRST}
        before = snapshot.take()
        accel_core.get_accelerator()
        after = snapshot.take()
        print(json.dumps({{fact: after[fact] for fact in after if after[fact] != before[fact]}}))
        """,
        [toy],
    ).report
    assert changed == {}


def test_selection_prints_nothing_and_starts_no_process(children: Any, toy: Path) -> None:
    quiet = children.run(
        """
        import processes, accel_core
        accel_core.get_accelerator()
        accel_core.explain()
        assert processes.started == [], processes.started
        """,
        [toy],
    )
    assert (quiet.out, quiet.err) == ("", "")


_STARTED = "import processes, json, deepspeed; print(json.dumps(processes.started))"
_COMPILERS = ("c++", "g++", "gcc", "clang", "ninja", "nvcc", "hipcc", "icpx", "cc1")


@pytest.mark.upstream
def test_import_deepspeed_starts_no_process_more_with_us(children: Any, toy: Path) -> None:
    without = children.run(_STARTED, [toy], ACCEL_BRIDGE="0").report
    with_us = children.run(_STARTED, [toy]).report
    assert [line for line in with_us if with_us.count(line) > without.count(line)] == []


@pytest.mark.upstream
def test_probing_every_op_compiles_nothing(children: Any, toy: Path) -> None:
    probed = children.run(
        """
        import processes, json, deepspeed.ops
        from deepspeed.ops.op_builder.all_ops import ALL_OPS
        processes.started.clear()
        found = [op.is_compatible() for op in ALL_OPS.values()] + [dict(deepspeed.ops.__compatible_ops__)]
        print(json.dumps(processes.started))
        """,
        [toy],
    ).report
    assert probed == []
    assert children.compiled() == []


@pytest.mark.upstream
def test_the_cpus_ops_are_probed_without_a_process(children: Any) -> None:
    pytest.importorskip("accel_cpu", reason="not run: package accel-cpu")
    started = children.run(
        """
        import processes, json, deepspeed, deepspeed.ops
        from deepspeed.ops.op_builder.all_ops import ALL_OPS
        assert "cpu_adam" in ALL_OPS
        [op.is_compatible() for op in ALL_OPS.values()], deepspeed.ops.__compatible_ops__
        print(json.dumps(processes.started))
        """,
        DS_ACCELERATOR="cpu",
    ).report
    assert [line for line in started if any(f"/{name} " in f"/{line} " for name in _COMPILERS)] == []
    assert children.compiled() == []


def test_fork_after_import_and_then_use_works(children: Any, toy: Path) -> None:
    children.run(
        """
        import os, torch, accel_core
        if (child := os.fork()) == 0:
            status = 1
            try:
                accelerator = accel_core.get_accelerator()
                accelerator.set_device(1)
                assert accelerator.current_device() == 1
                assert accelerator.create_op_builder("FusedAdamBuilder").load().multi_tensor_adam
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert accel_core.get_accelerator().current_device() == 0
        """,
        [toy],
    )


_BREAKAGES = {
    "wrapt raises": "raise RuntimeError('wrapt was built for another Python')",
    "wrapt is another package": "",
}


@pytest.mark.upstream
@pytest.mark.parametrize("breakage", _BREAKAGES.values(), ids=_BREAKAGES)
def test_a_broken_wrapt_is_told_and_takes_nothing_down(
    children: Any, toy: Path, tmp_path: Path, breakage: str
) -> None:
    (tmp_path / "wrapt.py").write_text(breakage)
    reported = children.run(
        "import torch, deepspeed, agreement; agreement.untouched(); assert torch.ones(1) == 1",
        [tmp_path, toy],
    )
    assert "accel_core is not joined to deepspeed" in reported.err


def test_a_broken_accel_core_does_not_take_import_torch_down(
    children: Any, toy: Path, tmp_path: Path
) -> None:
    # An import path without accel_core's dependencies, as after a half-done upgrade.
    (tmp_path / "packaging.py").write_text("raise ImportError('half an upgrade')")
    children.run("import torch; assert torch.ones(1) == 1", [tmp_path, toy])
