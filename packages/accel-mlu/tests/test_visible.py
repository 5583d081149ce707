# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""CN_VISIBLE_DEVICES goes before MLU_VISIBLE_DEVICES."""

import pytest

from accel_mlu import visible

CN, MLU = "CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("cn", "mlu", "first", "reported"),
    [
        (None, None, MLU, ""),
        (None, "0,1", MLU, ""),
        ("0", None, CN, ""),
        ("0", "0", CN, ""),
        ("0", "1", CN, "CN_VISIBLE_DEVICES=0 overrules MLU_VISIBLE_DEVICES=1"),
        ("", "1", CN, "CN_VISIBLE_DEVICES= overrules MLU_VISIBLE_DEVICES=1"),
    ],
)
def test_the_variable_that_decides_comes_first(
    cn: str | None, mlu: str | None, first: str, reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ((CN, cn), (MLU, mlu)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert visible.variables()[0] == first
    assert set(visible.variables()) == {CN, MLU}
    assert visible.overruled() == reported
