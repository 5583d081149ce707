# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lines that no check can reach on this machine: the inner parts of a driver, a library or a compiler that is not here.

They are those behind the failure in a function of which every call has failed. What the accelerator offers itself is
never among them, and neither is what some call has passed over and returned.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass

from accel_testkit.mutation import scope
from accel_testkit.mutation.source import Function, Mutant, Source


@dataclass(frozen=True)
class Unreached:
    """The lines of one module. wanted: names of its functions with mutants."""

    lines: frozenset[int]
    wanted: Collection[str]

    @classmethod
    def of(
        cls,
        source: Source,
        executed: Collection[int],
        wanted: Collection[str],
        offered: Collection[tuple[str, int]],
    ) -> Unreached:
        """Return those of a module.

        executed: its lines, and minus the first line of each function that has returned. offered: the accelerator's
        own functions, by file and first line.
        """
        lines: set[int] = set()
        for function in source.functions():
            first = scope.first_line(function)
            if (
                function.name in wanted
                and -first not in executed
                and (str(source.path), first) not in offered
            ):
                lines |= set(_lines(function)).difference(executed)
        return cls(frozenset(lines), wanted)

    def has(self, mutant: Mutant) -> bool:
        """Return whether a mutant is in these lines, or a private table that only these and no mutants' lines read."""
        if not mutant.table:
            return self.lines.issuperset(range(mutant.first, mutant.last + 1))
        name = mutant.function.rpartition(".")[2]
        if name[0] != "_" or "." in mutant.function or _is_read_outside(mutant.source, name):
            return False
        return all(
            function.name not in self.wanted or node.lineno in self.lines
            for function in mutant.source.functions()
            for node in ast.walk(function.node)
            if isinstance(node, ast.Name) and _reads(node, name)
        )


def _lines(function: Function) -> range:
    return range(function.first_line, (function.node.end_lineno or function.first_line) + 1)


def _reads(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _is_read_outside(source: Source, name: str) -> bool:
    """Return whether the module reads a name when it is imported."""
    inside = {node for function in source.functions() for node in ast.walk(function.node)}
    return any(_reads(node, name) and node not in inside for node in ast.walk(source.tree))
