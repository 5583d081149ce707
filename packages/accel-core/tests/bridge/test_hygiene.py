# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Import hygiene: what `import torch`, `import accel_core` and `import deepspeed` may not do because of us."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="not run: package torch")

_MODULES = "import json, sys, torch; print(json.dumps(sorted(sys.modules)))"
_OFF = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def test_import_torch_loads_at_most_fifteen_further_modules(children: Any, toy: Path) -> None:
    without = children.run(_MODULES, [toy], **_OFF).report
    further = sorted(set(children.run(_MODULES, [toy]).report) - set(without))
    assert "accel_core.activate" in further
    assert len(further) <= 15, further
    assert not [name for name in further if name.startswith(("wrapt", "accel_toy", "accel_core.upstream"))]


def test_import_torch_and_core_print_nothing_start_no_process_and_select_nothing(
    children: Any, toy: Path
) -> None:
    # Selection would be heard of: this driver is broken.
    quiet = children.run(
        """
        import processes, sys, accel_core
        loaded = {name.partition(".")[0] for name in sys.modules}
        assert not loaded & {"torch", "deepspeed", "wrapt", "numpy", "accel_toy"}, loaded
        import torch
        from accel_core.api import CURRENT
        assert CURRENT.state() == (None, None)
        assert "accel_toy" not in sys.modules
        assert processes.started == [], processes.started
        """,
        [toy],
        TOY_DEVICES="-1",
    )
    assert (quiet.out, quiet.err) == ("", "")


def test_neither_our_entry_point_nor_a_selection_changes_anything_else_in_the_process(
    children: Any, toy: Path
) -> None:
    changed = children.run(
        """
        import processes, json, torch, snapshot
        from importlib.metadata import entry_points
        taken = [snapshot.take()]
        ours = {point.value: point for point in entry_points(group="torch.backends") if point.name == "accel_core"}
        [point] = ours.values()
        point.load()()
        taken.append(snapshot.take())
        import accel_toy.accelerator, accel_core.api  # what a selection imports, whose doings are not ours
        taken.append(snapshot.take())
        accel_core.get_accelerator()
        accel_core.explain()
        taken.append(snapshot.take())
        pairs = (taken[:2], taken[2:])
        assert processes.started == [], processes.started
        print(json.dumps([fact for before, after in pairs for fact in after if after[fact] != before[fact]]))
        """,
        [toy],
        **_OFF,
    )
    assert (changed.report, changed.err) == ([], "")


_STARTED = "import processes, json, deepspeed; print(json.dumps(processes.started))"


@pytest.mark.upstream
def test_import_deepspeed_starts_no_process_more_with_us(children: Any, toy: Path) -> None:
    without = children.run(_STARTED, [toy], ACCEL_BRIDGE="0").report
    with_us = children.run(_STARTED, [toy]).report
    assert [line for line in with_us if with_us.count(line) > without.count(line)] == []


@pytest.mark.upstream
@pytest.mark.parametrize("device", ["toy", "cpu"])
def test_probing_every_op_starts_no_process_and_compiles_nothing(
    children: Any, toy: Path, device: str
) -> None:
    if device == "cpu":
        pytest.importorskip("accel_cpu", reason="not run: package accel-cpu")
    started = children.run(
        f"""
        import processes, json, deepspeed, deepspeed.ops
        from deepspeed.ops.op_builder.all_ops import ALL_OPS
        assert ("cpu_adam" in ALL_OPS) == ({device!r} == "cpu")
        processes.started.clear()
        found = [op.is_compatible() for op in ALL_OPS.values()] + [dict(deepspeed.ops.__compatible_ops__)]
        print(json.dumps(processes.started))
        """,
        [toy],
        DS_ACCELERATOR=device,
    ).report
    assert started == []
    assert children.compiled() == []


_BREAKAGES = {
    "wrapt raises": "raise RuntimeError('wrapt was built for another Python')",
    "wrapt is another package": "",
}


@pytest.mark.upstream
@pytest.mark.parametrize("breakage", _BREAKAGES.values(), ids=_BREAKAGES)
def test_a_broken_wrapt_is_reported_and_takes_nothing_down(
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
