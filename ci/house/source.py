# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A file under the house rules, and what a broken rule looks like."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

SOURCE_SUFFIXES = (".py", ".pyi", ".sh", ".c", ".cc", ".cpp", ".h", ".hpp", ".cu", ".sycl", ".metal")


@dataclass(frozen=True)
class Violation:
    """A rule that one line breaks."""

    file: str
    line: int
    rule: str
    found: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.found}"


@dataclass(frozen=True)
class Source:
    """A text file of the repository; `path` is relative to the root."""

    path: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed Python file. Raises SyntaxError."""
        return ast.parse(self.text, self.path)

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def is_source(self) -> bool:
        """A program text, scripts without a suffix included."""
        return self.path.endswith(SOURCE_SUFFIXES) or self.text.startswith("#!")

    @property
    def package(self) -> str:
        """`accel-core` for a file below packages/accel-core/src, else empty."""
        parts = self.path.split("/")
        return parts[1] if parts[0] == "packages" and parts[2:3] == ["src"] else ""

    def violation(self, line: int, rule: str, found: str) -> Violation:
        return Violation(self.path, line, rule, found)


def tell(found: Iterable[tuple[Violation, str]]) -> int:
    """Prints every broken rule by its place, with the reason why it is let through; 1 when one is not."""
    rows = sorted(found, key=lambda pair: (pair[0].file, pair[0].line, pair[0].found))
    for violation, reason in rows:
        print(f"{violation} (let through: {reason})" if reason else violation)
    broken = sum(not reason for _, reason in rows)
    print(f"{broken} broken, {len(rows) - broken} let through")
    return 1 if broken else 0
