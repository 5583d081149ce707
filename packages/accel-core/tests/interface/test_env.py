# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Environment variables have one place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accel_core import env
from accel_core.errors import InvalidEnvironment

SOURCES = Path(env.__file__).parent


@pytest.mark.parametrize(
    ("values", "on"), [(("1", "true", "YES", " on "), True), (("", "0", "False", "no", "off"), False)]
)
def test_a_switch_is_on_or_off(monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...], on: bool) -> None:
    for value in values:
        monkeypatch.setenv("ACCEL_STRICT", value)
        assert env.STRICT.on() is on


def test_a_switch_with_another_value_is_an_error_rather_than_a_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCEL_STRICT", "maybe")
    with pytest.raises(InvalidEnvironment, match="ACCEL_STRICT='maybe'"):
        env.STRICT.on()


def test_a_list_forgives_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCEL_SKIP", " npu, ,mlu ")
    assert env.SKIP.names() == ("npu", "mlu")


def test_no_other_module_of_core_reads_a_variable_of_ours() -> None:
    readers = [
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        # activate.py looks whether one is set before it loads env, which every `import torch` would pay for.
        if path.name not in ("env.py", "activate.py")
        and re.search(r"""environ[^\n]*["'](ACCEL_|DS_ACCELERATOR)""", path.read_text())
    ]
    assert readers == []
