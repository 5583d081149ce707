# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ASCEND_RT_VISIBLE_DEVICES: only ids that ascend get through."""

import pytest

from accel_core.errors import InvalidEnvironment
from accel_npu import visible


@pytest.mark.parametrize(
    ("ids", "value"), [([0], "0"), ([0, 1, 5], "0,1,5"), (["2", "10"], "2,10"), ([], "")]
)
def test_ascending_ids_are_joined(ids: list[int | str], value: str) -> None:
    assert visible.joined(ids) == value


@pytest.mark.parametrize("ids", [[1, 0], [0, 0], ["GPU-1"], [0, "x"], [-1, 0]])
def test_anything_else_is_an_error_that_shows_it(ids: list[int | str]) -> None:
    with pytest.raises(InvalidEnvironment, match=visible.VARIABLE) as caught:
        visible.joined(ids)
    assert ", ".join(map(str, ids)) in str(caught.value)


@pytest.mark.parametrize("value", ["0", "0,1", "3,7", ""])
def test_a_good_variable_has_no_fault(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(visible.VARIABLE, value)
    assert visible.fault() == ""


@pytest.mark.parametrize(
    ("value", "reported"), [("1,0", "do not ascend"), ("0,0", "do not ascend"), ("0,x", "other than")]
)
def test_a_bad_variable_is_told(value: str, reported: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(visible.VARIABLE, value)
    assert reported in visible.fault()
    assert value in visible.fault()
