# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The installed DeepSpeed: its interface, what its source uses of an accelerator, and releases that nobody tried."""

import re
from pathlib import Path
from typing import Any

import pytest

from accel_core import DeepSpeedAccelerator
from accel_core.vendor import deepspeed_folder

from ..site_packages import SitePackages

pytestmark = pytest.mark.upstream


_BOUND_BUILDERS = """
import ast, importlib, json
from pathlib import Path
import deepspeed
from accel_core.upstream.hooks import Forwarding

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


def test_every_bound_builder_is_forwarding(toy: Any) -> None:
    found, error = toy.run(_BOUND_BUILDERS).report
    assert "deepspeed.compile.util:DeepCompileBuilder" in found
    assert all(found.values()), found
    assert "DeepCompileBuilder cannot be loaded" in error
    assert toy.compiled() == []


# --- a DeepSpeed that is not among the tested ones: the installed one, patched and under another version

_ABSTRACT = """

    @abc.abstractmethod
    def quantum_entangle(self):
        ...
"""
_CONCRETE = """

    def quantum_entangle(self):
        return type(self).__name__
"""


def _patched(folder: Path, version: str, interface: str = "", backends: str = "") -> Path:
    """A folder whose deepspeed is the installed one but for text at the end of the accelerator classes."""
    real, copy = deepspeed_folder() or Path(), folder / "deepspeed"
    (copy / "accelerator").mkdir(parents=True)
    for entry in real.iterdir():
        if entry.name not in ("accelerator", "__pycache__"):
            (copy / entry.name).symlink_to(entry)
    added = {"abstract_accelerator": interface, "cpu_accelerator": backends, "cuda_accelerator": backends}
    for file in (real / "accelerator").glob("*.py"):
        (copy / "accelerator" / file.name).write_text(file.read_text() + added.get(file.stem, ""))
    SitePackages(folder).distribution("deepspeed", version)
    return folder


def test_newer_concrete_method_is_inherited(toy: Any, tmp_path: Path) -> None:
    said = toy.on(_patched(tmp_path, "0.20.0", _CONCRETE)).run(
        """
        import agreement, deepspeed
        agreement.hold("accel_toy")
        assert deepspeed.accelerator.get_accelerator().quantum_entangle() == "Toy_Accelerator"
        """
    )
    assert said.err.count("deepspeed 0.20.0 is outside") == 1
    assert "<0.20" in said.err
    assert ">=0.18" in said.err


@pytest.mark.parametrize("version", ["0.17.3", ""])
def test_older_release_is_one_warning(toy: Any, tmp_path: Path, version: str) -> None:
    folders = [_patched(tmp_path, version)] if version else []
    said = toy.on(*folders).run("import agreement; agreement.hold('accel_toy')").err
    assert said.count(f"deepspeed {version} is outside") == 1 if version else not said


@pytest.fixture
def newer(toy: Any, tmp_path: Path) -> Any:
    """Fresh interpreters with accel-toy and a DeepSpeed that asks for a method which ours has not."""
    return toy.on(_patched(tmp_path, "0.20.0", _ABSTRACT, _CONCRETE))


def test_missing_method_leaves_deepspeed_untouched(newer: Any) -> None:
    said = newer.run(
        """
        import deepspeed, agreement
        agreement.untouched()
        from deepspeed.accelerator import get_accelerator
        assert type(get_accelerator()).__module__ == "deepspeed.accelerator.cpu_accelerator"
        import accel_core
        with accel_core.using("toy") as ours:
            assert type(ours).__module__ == "accel_toy.accelerator"
            agreement.untouched()
        """,
        TOY_DEVICES="0",
    )
    assert said.err.count("[ACC-301]") == 1
    assert "quantum_entangle; deepspeed 0.20.0, accel-core " in said.err
    assert "pip install --upgrade ./packages/accel-core" in said.err


def test_missing_method_under_strict(newer: Any) -> None:
    raised = newer.run(
        """
        import json
        raised = []
        for _ in range(2):
            try:
                import deepspeed
            except RuntimeError as error:
                raised.append(str(error))
            try:
                from deepspeed.accelerator import get_accelerator
                get_accelerator()
            except RuntimeError as error:
                raised.append(str(error))
        print(json.dumps(raised))
        """,
        ACCEL_STRICT="1",
    ).report
    assert len(raised) == 4
    assert len(set(raised)) == 1
    assert raised[0].startswith("deepspeed 0.20.0 asks accelerators for methods")
    assert "quantum_entangle" in raised[0]


#: A member of an accelerator, by the names under which DeepSpeed keeps one.
_MEMBER = re.compile(
    r"(?:\bget_accelerator\(\)|(?<![\w.])(?:self\.)?_?(?:ds_)?accel(?:erator)?)\.(?!_|(?:get|real|abstract)_acc)(\w+)"
)


def test_members_that_deepspeed_uses_exist() -> None:
    root = deepspeed_folder() or Path()
    # The vendors' own classes call themselves, not the interface.
    files = [file for file in root.rglob("*.py") if file.parent != root / "accelerator"]
    used = {name for file in files for name in _MEMBER.findall(file.read_text(encoding="utf-8"))}
    assert {"current_device_name", "create_op_builder", "pin_memory", "Event", "range_push"} <= used
    assert [name for name in used if not hasattr(DeepSpeedAccelerator, name)] == []
