# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors have four parts and a code; environment variables have one place."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from accel_core import env, errors
from accel_core.errors import AccelError, InvalidEnvironment

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AccelError)]
SOURCES = Path(env.__file__).parent


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_shows_its_code_and_four_parts_in_order(kind: type[AccelError]) -> None:
    error = kind(what="it failed", found="this\nand that", expected="those", do="the other")
    text = str(error)
    parts = [kind.code, "it failed", "found:    this", "and that", "expected: those", "do:       the other"]
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_survives_the_way_to_another_process(kind: type[AccelError]) -> None:
    error = pickle.loads(pickle.dumps(kind(what="a", found="b", expected="c", do="d")))
    assert (type(error), str(error)) == (kind, str(kind(what="a", found="b", expected="c", do="d")))


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"ACC-\d{3}", code) for code in codes)


@pytest.mark.parametrize("value", ["1", "true", "YES", " on "])
def test_a_switch_is_on(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ACCEL_STRICT", value)
    assert env.STRICT.on()


@pytest.mark.parametrize("value", ["", "0", "False", "no", "off"])
def test_a_switch_is_off(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ACCEL_STRICT", value)
    assert not env.STRICT.on()


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


def test_every_variable_used_in_core_is_listed() -> None:
    declared = {name for name, value in vars(env).items() if isinstance(value, env.Variable)}
    assert {vars(env)[name] for name in declared} == set(env.VARIABLES)
