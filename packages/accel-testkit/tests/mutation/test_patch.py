# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A mutant replaces what runs, through every reference, here and in started processes."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from accel_testkit.mutation import patch, rules
from accel_testkit.mutation.source import Mutant, Source

TOY = """
import functools


class Base:
    def count(self):
        return 1


class Toy(Base):
    def count(self):
        return super().count() + 1

    @property
    def name(self):
        return "toy"

    @staticmethod
    def made(n):
        def add(m):
            return n + m

        return add


@functools.cache
def cached(n):
    return n + 1


add = Toy.made(1)
alias = cached
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package `mutated_toy` with one module."""
    package = tmp_path / "mutated_toy"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text(TOY)
    (package / "other.py").write_text("VALUE = 5\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("mutated_toy.part")
    for name in [name for name in sys.modules if name.startswith("mutated_toy")]:
        del sys.modules[name]


def mutant(toy: ModuleType, function: str, rule: str) -> Mutant:
    """The first mutant of a function by a rule."""
    source = Source.read(Path(str(toy.__file__)), "mutated_toy.part")
    found = [one for one in rules.mutants(source) if (one.function, one.rule) == (function, rule)]
    assert found, f"{rule} makes no mutant of {function}"
    return found[0]


def install(toy: ModuleType, one: Mutant) -> int:
    """Put it into this process."""
    return patch.install(one, patch.live_functions([str(Path(str(toy.__file__)).parent)]))


def test_method_with_super_is_replaced(toy: ModuleType) -> None:
    before = toy.Toy()
    assert install(toy, mutant(toy, "Toy.count", "arithmetic")) == 1
    assert before.count() == 0


def test_method_that_no_longer_calls_super_is_replaced(toy: ModuleType) -> None:
    assert install(toy, mutant(toy, "Toy.count", "constant")) == 1
    assert toy.Toy().count() is None


def test_inherited_method_is_replaced_for_the_class_that_inherits(toy: ModuleType) -> None:
    assert install(toy, mutant(toy, "Base.count", "off-by-one")) == 1
    assert toy.Toy().count() == 3


def test_property_is_replaced(toy: ModuleType) -> None:
    assert install(toy, mutant(toy, "Toy.name", "text")) == 1
    assert toy.Toy().name == "toyx"


def test_closure_that_exists_and_one_made_later_are_replaced(toy: ModuleType) -> None:
    assert install(toy, mutant(toy, "Toy.made.<locals>.add", "arithmetic")) == 2
    assert toy.add(3) == -2
    assert toy.Toy.made(5)(1) == 4


def test_decorated_function_is_replaced_behind_its_alias(toy: ModuleType) -> None:
    assert install(toy, mutant(toy, "cached", "arithmetic")) == 1
    assert toy.alias(3) == 2


def test_same_program_has_no_changes(toy: ModuleType) -> None:
    one = mutant(toy, "Base.count", "off-by-one")
    same = Mutant(one.source, one.function, one.rule, one.first, one.last, ())
    assert patch.changes(one)
    assert not patch.changes(same)


def test_started_process_imports_the_mutant(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")
    folder = tmp_path / "packages"
    folder.mkdir()
    program = "from mutated_toy import other, part; print(part.Toy().count(), other.VALUE)"

    def answer() -> str:
        run = [sys.executable, "-c", program]
        return subprocess.run(run, capture_output=True, text=True, check=True, env=os.environ).stdout.strip()

    assert answer() == "2 5"
    patch.overlay(mutant(toy, "Base.count", "off-by-one"), folder)
    assert answer() == "3 5"


TABLES = """
NAMES = ["a", "b"]
LIMIT = 3
PAIR = ("x", "y")


class Toy:
    flag = True

    def names(self):
        return [*NAMES, LIMIT, *PAIR, self.flag]
"""


@pytest.mark.parametrize(
    ("name", "rule", "expected"),
    [
        ("NAMES", "entry", ["b", 3, "x", "y", True]),
        ("NAMES", "text", ["ax", "b", 3, "x", "y", True]),
        ("LIMIT", "off-by-one", ["a", "b", 4, "x", "y", True]),
        ("PAIR", "entry", ["a", "b", 3, "y", True]),
        ("Toy.flag", "condition", ["a", "b", 3, "x", "y", False]),
    ],
)
def test_table_is_replaced_wherever_it_is_used(
    name: str, rule: str, expected: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mutated_tables.py").write_text(TABLES)
    (tmp_path / "mutated_user.py").write_text("from mutated_tables import LIMIT, NAMES, PAIR\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        module, user = (importlib.import_module(name) for name in ("mutated_tables", "mutated_user"))
        source = Source.read(Path(str(module.__file__)), "mutated_tables")
        one = next(one for one in rules.mutants(source) if (one.function, one.rule) == (name, rule))
        assert patch.differs(one)
        assert patch.install(one, {}) >= 1
        assert module.Toy().names() == expected
        assert [*user.NAMES, user.LIMIT, *user.PAIR] == expected[:-1]
    finally:
        for loaded in ("mutated_tables", "mutated_user"):
            sys.modules.pop(loaded, None)
