# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Every call that DeepSpeed's own source makes on an accelerator is one that ours takes."""

import ast
import functools
import importlib.util
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="not run: package torch")

from accel_core import DeepSpeedAccelerator, TorchDeviceAccelerator

pytestmark = pytest.mark.upstream

#: Names under which DeepSpeed's modules keep an accelerator, beside what they assign from get_accelerator().
_HOLDERS = {"accelerator", "_accelerator", "accel", "ds_accelerator"}
#: What these names also mean there: a submodule of DeepSpeed, an inference workspace.
_NOT_OURS = {"get_accelerator", "_initialized"}


@dataclass(frozen=True)
class Use:
    """One use of an accelerator's member; `call` is None for plain access."""

    member: str
    place: str
    call: ast.Call | None = None

    def binds(self, function: Any) -> bool:
        """Whether the function takes these arguments, whatever their values."""
        assert self.call is not None
        if any(isinstance(argument, ast.Starred) for argument in self.call.args):
            return True
        names = [keyword.arg for keyword in self.call.keywords if keyword.arg is not None]
        try:
            inspect.signature(function).bind(None, *self.call.args, **dict.fromkeys(names))
        except TypeError:
            return False
        return True


def _is_get_accelerator(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name == "get_accelerator"


def _uses_in(file: Path, root: Path) -> Iterator[Use]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assigned = {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_get_accelerator(node.value)
        for target in node.targets
    }

    def of_accelerator(node: ast.AST) -> bool:
        if not isinstance(node, ast.Attribute) or node.attr in _NOT_OURS:
            return False
        owner = ast.unparse(node.value)
        return _is_get_accelerator(node.value) or owner in assigned or owner.rpartition(".")[2] in _HOLDERS

    for node in ast.walk(tree):
        place = f"{file.relative_to(root)}:{getattr(node, 'lineno', 0)}"
        if of_accelerator(node):
            yield Use(node.attr, place)  # type: ignore[attr-defined]
        if isinstance(node, ast.Call) and of_accelerator(node.func):
            yield Use(node.func.attr, place, node)  # type: ignore[attr-defined]


@functools.cache
def _uses() -> tuple[Use, ...]:
    found = importlib.util.find_spec("deepspeed")
    assert found is not None
    assert found.origin is not None
    root = Path(found.origin).parent
    # The vendors' own classes call themselves, not the interface.
    files = [file for file in sorted(root.rglob("*.py")) if file.parent != root / "accelerator"]
    return tuple(use for file in files for use in _uses_in(file, root))


def _classes() -> list[type]:
    classes: list[type] = [DeepSpeedAccelerator, TorchDeviceAccelerator]
    if importlib.util.find_spec("accel_cpu"):
        from accel_cpu import CPU_Accelerator

        classes.append(CPU_Accelerator)
    return classes


def test_the_walk_finds_what_deepspeed_is_known_to_call() -> None:
    called = {use.member for use in _uses() if use.call is not None}
    assert len(_uses()) > 500
    assert {"current_device_name", "create_op_builder", "pin_memory", "Event", "range_push"} <= called


@pytest.mark.parametrize("accelerator", _classes(), ids=lambda kind: kind.__name__)
def test_every_member_that_deepspeed_uses_exists(accelerator: type) -> None:
    instance_attributes = {"_name", "_communication_backend_name", "_compile_backend"}
    missing = {
        f"{use.member} at {use.place}"
        for use in _uses()
        if use.member not in instance_attributes and not hasattr(accelerator, use.member)
    }
    assert missing == set()


@pytest.mark.parametrize("accelerator", _classes(), ids=lambda kind: kind.__name__)
def test_every_call_shape_that_deepspeed_uses_is_taken(accelerator: type) -> None:
    refused = {
        f"{ast.unparse(use.call)} at {use.place}"
        for use in _uses()
        if use.call is not None
        and inspect.isfunction(function := inspect.getattr_static(accelerator, use.member, None))
        and not use.binds(function)
    }
    assert refused == set()
