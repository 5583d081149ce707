# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Every member of an accelerator that DeepSpeed's own source uses is one of ours, in its interface or not.

How the interface's methods can be called is in the conformance suite (test_identity).
"""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="not run: package torch")

from accel_core import DeepSpeedAccelerator

#: Names under which DeepSpeed's modules keep an accelerator, beside what they assign from get_accelerator().
_HOLDERS = {"accelerator", "_accelerator", "accel", "ds_accelerator"}
#: What these names also mean there: a submodule of DeepSpeed, an inference workspace.
_NOT_OURS = {"get_accelerator", "_initialized"}
#: Which the constructor sets.
_INSTANCE_ATTRIBUTES = {"_name", "_communication_backend_name", "_compile_backend"}


def _is_get_accelerator(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name == "get_accelerator"


def _used_in(file: Path) -> Iterator[tuple[str, str]]:
    """Yield each member and its place."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assigned = {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_get_accelerator(node.value)
        for target in node.targets
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr not in _NOT_OURS:
            owner = ast.unparse(node.value)
            held = owner in assigned or owner.rpartition(".")[2] in _HOLDERS
            if held or _is_get_accelerator(node.value):
                yield node.attr, f"{file}:{node.lineno}"


@pytest.mark.upstream
def test_every_member_that_deepspeed_uses_exists() -> None:
    found = importlib.util.find_spec("deepspeed")
    assert found is not None
    root = Path(str(found.origin)).parent
    # The vendors' own classes call themselves, not the interface.
    files = [file for file in sorted(root.rglob("*.py")) if file.parent != root / "accelerator"]
    used = [use for file in files for use in _used_in(file)]
    members = {member for member, _ in used}
    assert {"current_device_name", "create_op_builder", "pin_memory", "Event", "range_push"} <= members
    assert len(used) > 250
    wanted = members - _INSTANCE_ATTRIBUTES
    missing = {member for member in wanted if not hasattr(DeepSpeedAccelerator, member)}
    assert [use for use in used if use[0] in missing] == []
