# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The contract's table: every method and property has a check that exists, or a reason; every feature has its signs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder.inference import core_ops, transformer
from accel_core.vendor import Feature
from accel_testkit.suite import contract, device_index, inference_functions, test_op_loading, test_traits
from accel_testkit.suite.call_signatures import public_members


@pytest.fixture
def checks(run_suite: Any, install_site: Callable[[], None]) -> set[str]:
    """Ids of all checks, with and without their parameters."""
    install_site()
    found: set[str] = set()
    for started in ("", "report", "answers", "alone", "pair", "seen"):
        found |= run_suite(
            "accel_testkit.suite", "--accel", "good", "--collect-only", started=started
        ).collected
    return found | {check.partition("[")[0] for check in found}


def test_every_method_has_a_row_without_an_empty_cell() -> None:
    rows = dict(contract.table())
    assert set(rows) == set(public_members())
    empty = [
        (name, column)
        for name, cells in rows.items()
        for column in contract.PROPERTIES
        if bool(cells[column].checks) == bool(len(cells[column].reason.split()) > 1)
    ]
    assert empty == []


def test_a_method_without_a_row_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    interface = DeepSpeedAccelerator.__mro__[1]
    monkeypatch.setattr(interface, "new_question", lambda self: True, raising=False)
    with pytest.raises(KeyError, match="new_question"):
        dict(contract.table())


def test_the_table_names_checks_there_are(checks: set[str]) -> None:
    named = {check for _, cells in contract.table() for cell in cells.values() for check in cell.checks}
    named |= set(test_traits.ELSEWHERE.values())
    assert named - checks == set()


def test_every_indexed_method_is_read_reset_or_named() -> None:
    kinds = [
        set(device_index.READERS),
        set(device_index.RESETS),
        set(device_index.NAMING),
        set(device_index.WAITING),
        set(device_index.RESTORING),
    ]
    assert set.union(*kinds) == set(device_index.indexed_methods())
    assert sum(map(len, kinds)) == len(device_index.indexed_methods())


def test_every_feature_has_signs_or_is_shown_in_other_processes() -> None:
    assert {*test_traits.SIGNS, *test_traits.ELSEWHERE} == set(Feature)
    assert not {*test_traits.SIGNS} & {*test_traits.ELSEWHERE}


def test_every_function_of_the_inference_ops_is_listed() -> None:
    helpers = {"rotate", "attend"}  # of the class itself, which no caller of the op knows
    for cls, listed in (
        (transformer.TransformerFunctions, inference_functions.TRANSFORMER),
        (core_ops.CoreFunctions, inference_functions.CORE),
    ):
        names = {name.removesuffix("_fp32") for name in listed}
        assert names == {name for name in vars(cls) if name[0] != "_" and not name.isupper()} - helpers


def test_every_op_that_is_not_for_cuda_alone_has_its_functions_listed() -> None:
    from accel_core.op_builder.names import FUSED, HOST, INFERENCE, PLAIN

    assert {*FUSED, *HOST, *INFERENCE, *PLAIN} <= set(test_op_loading.FUNCTIONS)
