# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The rules: each yields the mutants of one function. Add a rule to the module of its subject, and list it here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from accel_testkit.mutation.rules import answers, arguments, calls, conditions, devices, restoring, values
from accel_testkit.mutation.source import Function, Mutant, Source

Rule = Callable[[Function], Iterator[Mutant]]

#: Name of the rule -> how its mutants differ. The names are those of `Mutant.rule`.
SENTENCES: dict[str, str] = {
    "index": "None means device 0, a given index is ignored, or is another one",
    "device": "the device is another one",
    "constant": "the function returns a constant, or does nothing",
    "stale": "the function keeps its first answer",
    "call": "a call is dropped",
    "state": "a state is not updated",
    "restore": "what a `with` or `finally` restores is left; an exception is not handled",
    "argument": "an argument is ignored",
    "swap": "two arguments or operands are swapped",
    "condition": "a condition is inverted",
    "off-by-one": "a number is one more, a comparison includes or excludes its bound",
    "arithmetic": "another operator",
    "dtype": "another dtype",
    "entry": "an element of a list, tuple or dict is missing",
    "text": "a name is another one",
}

_RULES: tuple[Rule, ...] = (
    devices.index,
    devices.device,
    answers.constant,
    answers.stale,
    calls.call,
    calls.state,
    restoring.restore,
    arguments.argument,
    arguments.swap,
    conditions.condition,
    values.off_by_one,
    values.arithmetic,
    values.dtype,
    values.entry,
    values.text,
)


#: For tables: they call nothing, and decide nothing.
_OF_TABLES: tuple[Rule, ...] = (
    conditions.condition,
    values.off_by_one,
    values.dtype,
    values.entry,
    values.text,
)


def mutants(source: Source) -> Iterator[Mutant]:
    """Yield the mutants of every function and table of a module, in the order of the source."""
    for function in source.functions():
        for rule in _RULES:
            yield from rule(function)
    for table in source.tables():
        for rule in _OF_TABLES:
            yield from rule(table)
