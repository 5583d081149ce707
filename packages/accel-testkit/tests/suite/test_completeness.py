# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The suite leaves nothing out: every method of the interface, feature and op is named by a check."""

import ast
from pathlib import Path

import pytest

from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder.names import FUSED, HOST, INFERENCE, PLAIN
from accel_core.vendor import Feature
from accel_ops import inference
from accel_testkit import suite
from accel_testkit.suite import test_device_index, test_op_table, test_traits
from accel_testkit.suite.needs import public_members
from accel_testkit.suite.ops import inference as specs

#: Methods that no check calls, each with the methods that call it and are checked.
HOOKS = {
    "pin_aligned": ("pin_memory",),
    "torch_empty_pinned": ("pin_empty",),
    "torch_is_pinned": ("is_pinned",),
    "torch_pin_memory": ("pin_memory", "pin_empty"),
}


TREES = {
    file.stem.removeprefix("test_"): ast.parse(file.read_text(encoding="utf-8"))
    for file in Path(suite.__file__).parent.glob("test_*.py")
}
CHECKS = {
    f"{stem}.{node.name.removeprefix('test_')}": node
    for stem, tree in TREES.items()
    for node in tree.body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
}


def named_by_checks() -> set[str]:
    """Return every attribute and text that the files of checks use."""
    nodes = [node for tree in TREES.values() for node in ast.walk(tree)]
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)} | {
        str(node.value) for node in nodes if isinstance(node, ast.Constant)
    }


def methods_without_a_check() -> set[str]:
    return set(public_members()) - named_by_checks() - set(HOOKS)


def test_every_method_of_the_interface_is_named_by_a_check() -> None:
    assert methods_without_a_check() == set()
    assert {caller for callers in HOOKS.values() for caller in callers} <= named_by_checks()


def test_a_method_that_no_check_names_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    interface = DeepSpeedAccelerator.__mro__[1]
    monkeypatch.setattr(interface, "new_question", lambda self: True, raising=False)
    assert methods_without_a_check() == {"new_question"}


def test_every_check_has_a_sentence_that_says_what_it_promises() -> None:
    assert CHECKS
    assert [name for name, check in CHECKS.items() if not ast.get_docstring(check)] == []


def test_the_checks_that_features_refer_to_exist() -> None:
    assert set(test_traits.ELSEWHERE.values()) <= set(CHECKS)


def test_every_indexed_method_is_read_reset_or_named() -> None:
    known = test_device_index
    kinds = [known.READERS, known.RESETS, known.NAMING, known.WAITING, known.RESTORING]
    assert sorted(name for kind in kinds for name in set(kind)) == sorted(known.indexed_methods())


def test_every_feature_has_signs_or_is_shown_in_other_processes() -> None:
    assert {*test_traits.SIGNS, *test_traits.ELSEWHERE} == set(Feature)
    assert not {*test_traits.SIGNS} & {*test_traits.ELSEWHERE}


def test_every_function_of_the_inference_ops_is_listed() -> None:
    helpers = {"rotate", "attend", "dequantize"}  # of the class itself, which no caller of the op knows
    for cls, listed in (
        (inference.TransformerFunctions, specs.TRANSFORMER),
        (inference.CoreFunctions, specs.CORE),
    ):
        names = {name.removesuffix("_fp32") for name in listed}
        assert names == {name for name in vars(cls) if name[0] != "_" and not name.isupper()} - helpers


def test_every_op_that_is_not_for_cuda_alone_has_its_functions_listed() -> None:
    assert {*FUSED, *HOST, *INFERENCE, *PLAIN} <= set(test_op_table.FUNCTIONS)
