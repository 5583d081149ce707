# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Each rule makes the mutants that it names, and every mutant is a program."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from textwrap import dedent

import pytest

from accel_testkit.mutation import rules
from accel_testkit.mutation.source import Source


def changed(text: str, rule: str) -> list[str]:
    """The lines that a rule's mutants add."""
    source = Source(Path("toy.py"), "toy", dedent(text))
    return [
        " / ".join(line[1:].strip() for line in mutant.diff() if line[0] == "+")
        for mutant in rules.mutants(source)
        if mutant.rule == rule
    ]


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        (
            "index",
            """
            def used(self, device_index=None):
                return self.module.used(device_index)
            """,
            [
                "device_index = device_index + 1 if isinstance(device_index, int) else device_index",
                "device_index = 0 if isinstance(device_index, int) else device_index",
                "device_index = 0 if device_index is None else device_index",
                "device_index = None",
            ],
        ),
        (
            "index",
            """
            def generator(self, index: int):
                return self.module.generators[index]
            """,
            [
                "index = index + 1 if isinstance(index, int) else index",
                "index = 0 if isinstance(index, int) else index",
            ],
        ),
        (
            "device",
            "def place(self):\n    return torch.empty(1, device=self.kind)",
            ["return torch.empty(1, device='meta')"],
        ),
        ("constant", "def count(self) -> int:\n    return self.n", ["return 0"]),
        ("constant", "def yes(self) -> bool:\n    return True", ["return False"]),
        ("constant", "def step(self) -> None:\n    self.n()", ["return"]),
        (
            "stale",
            "def used(self, i):\n    return self.n(i)",
            ['return globals().setdefault("_first_used", self.n(i))'],
        ),
        ("call", "def seed(self, n):\n    self.m.seed(n)", ["pass"]),
        ("call", "def stats(self):\n    return dict(self.m.stats())", ["return (self.m.stats())"]),
        ("call", "def wide(x):\n    return x.float()", ["return (x)"]),
        ("state", "def set(self, i):\n    self.i = i\n    j = i", ["pass"]),
        ("restore", "def f():\n    try:\n        g()\n    finally:\n        h()", ["pass"]),
        ("restore", "def f():\n    try:\n        g()\n    except OSError:\n        h()", ["raise"]),
        ("restore", "def f():\n    with g():\n        h()", ['with __import__("contextlib").nullcontext():']),
        ("argument", "def f(a, *, b=1):\n    return g(a, k=b)", ["b = 1", "return g(k=b)", "return g(a)"]),
        ("argument", "def f(a):\n    return g(k=a, l=2)", ["return g(l=2)", "return g(k=a)"]),
        (
            "swap",
            "def f(a, b):\n    return g(a, b) - a",
            ["return (a) - (g(a, b))", "return g((b), (a)) - a"],
        ),
        ("condition", "def f(a):\n    return 1 if a else 2", ["return 1 if (not (a)) else 2"]),
        ("condition", "def f(a, b):\n    g(a and b, True)", ["g(((a) or (b)), True)", "g(a and b, False)"]),
        ("off-by-one", "def f(a):\n    return a < 1", ["return (a <= 1)", "return a < 2"]),
        ("off-by-one", "def f(a) -> int:\n    return a", ["return (a) + 1"]),
        ("arithmetic", "def f(a):\n    return -a * 2", ["return ((-a) / (2))", "return (a) * 2"]),
        ("dtype", "def f(x):\n    return x.to(torch.float32)", ["return x.to(torch.float16)"]),
        ("dtype", "def f(x):\n    return (x - 1).float() / 7", ["return (x - 1).half() / 7"]),
        (
            "off-by-one",
            "def f():\n    return 0x0A.to_bytes(4)",
            ["return (11).to_bytes(4)", "return 0x0A.to_bytes(5)"],
        ),
        ("constant", "def f():\n    @g\n    def h():\n        pass\n    return h", ["return None"]),
        ("entry", "def f():\n    return [a, b]", ["return [b]", "return [a]"]),
        (
            "entry",
            "def f(a, b):\n    return {**({} if a else b), 1: 2}",
            ["return {1: 2}", "return {**({} if a else b)}"],
        ),
        ("text", "def f():\n    return g('bf16')", ["return g('bf16x')"]),
    ],
)
def test_rule_makes_these_mutants(rule: str, text: str, expected: list[str]) -> None:
    assert changed(text, rule) == expected


@pytest.mark.parametrize(
    "text",
    [
        'def f(self):\n    """Only a docstring, and [a, list]."""\n    raise NotImplementedError("a" + f(1))',
        "def f(x: list[int]) -> None: ...",
        "def f(self):\n    pass",
    ],
)
def test_what_computes_nothing_has_no_mutants(text: str) -> None:
    assert not list(rules.mutants(Source(Path("toy.py"), "toy", text)))


def test_what_only_an_error_message_needs_is_left_alone() -> None:
    text = """
    def f(key, known):
        near = sorted(known, key=len, reverse=True)
        if key not in known:
            raise KeyError(near)
        return known[key]
    """
    assert not changed(text, "argument")
    assert changed(text, "condition") == ["if (not (key not in known)):"]


def test_function_that_only_error_messages_call_is_left_alone() -> None:
    text = """
    class Op:
        def _names(self):
            return sorted(vars(self), reverse=True)

        def _error(self):
            return KeyError("a", "b")

        def __getattr__(self, name):
            if name:
                raise AttributeError(f"{name} is none of {self._names()}")
            raise self._error()
    """
    found = {mutant.function for mutant in rules.mutants(Source(Path("toy.py"), "toy", dedent(text)))}
    assert found == {"Op._error", "Op.__getattr__"}


@pytest.mark.parametrize(
    "text",
    [
        "Step = Callable[[list[int], str], None]",
        'Pair = tuple["int", "str"]',
        "Place = Mapping[str, tuple[int, ...]] | None",
        'Kind = TypeVar("Kind")',
    ],
)
def test_what_is_for_type_checkers_has_no_mutants(text: str) -> None:
    assert not list(rules.mutants(Source(Path("toy.py"), "toy", text)))
    assert list(rules.mutants(Source(Path("toy.py"), "toy", "SIZES = {'a': 1} | {'b': 2}")))


def test_lengths_that_zip_asserts_are_no_argument() -> None:
    text = "def f(a, b):\n    return g(zip(a, b, strict=True), h(strict=True))"
    assert changed(text, "condition") == ["return g(zip(a, b, strict=True), h(strict=False))"]
    assert not [line for line in changed(text, "argument") if "strict" not in line.partition("h(")[0]]


def test_argument_that_only_prints_is_kept() -> None:
    assert changed("def f(a):\n    return g(verbose=a, n=2)", "argument") == ["return g(verbose=a)"]


@pytest.mark.parametrize(
    "call",
    ["math.gcd(a, b)", "torch.maximum(a, b)", "torch.promote_types(a, b)", "(a - b).abs()", "abs(a - b)"],
)
def test_order_that_changes_nothing_is_kept(call: str) -> None:
    assert not changed(f"def f(a, b):\n    return {call}", "swap")


def test_every_rule_has_a_sentence() -> None:
    found = {mutant.rule for mutant in rules.mutants(Source.read(Path(rules.__file__), "rules"))}
    assert found
    assert found <= set(rules.SENTENCES)


@pytest.mark.parametrize(
    "module",
    ["accel_core.device.torch_device", "accel_core.op_builder.steps.adam", "accel_core.interface.pinned"],
)
def test_every_mutant_is_a_program_and_differs(module: str) -> None:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    source = Source.read(Path(str(spec.origin)), module)
    mutants = list(rules.mutants(source))
    assert len(mutants) > 50
    for mutant in mutants:
        compile(mutant.text, "toy.py", "exec")
        assert mutant.diff()
