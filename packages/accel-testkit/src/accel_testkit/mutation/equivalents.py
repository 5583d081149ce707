# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mutants whose outcome is known: those that change nothing a caller can observe, and gaps that are accepted.

The entries of `equivalents.json` beside this file, and of a vendor's own file (--known FILE), are objects with

    function  module and qualified name, with `*` for any text
    rule      the mutant's rule
    change    its removed and added lines, without indentation; left out: any
    kind      `equivalent`: it changes nothing, and is not counted; `known`: it survives, for this reason
    reason    why, in one sentence
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from accel_testkit.mutation.source import Mutant

OURS = Path(__file__).with_name("equivalents.json")
KINDS = ("equivalent", "known")


@dataclass(frozen=True)
class Known:
    """One entry."""

    function: str
    rule: str
    kind: str
    reason: str
    change: tuple[str, ...] = ()

    def matches(self, mutant: Mutant) -> bool:
        """Return whether the entry is about this mutant."""
        return (
            mutant.rule == self.rule
            and fnmatchcase(mutant.name, self.function)
            and (not self.change or self.change == change(mutant))
        )


def change(mutant: Mutant) -> tuple[str, ...]:
    """Return a mutant's removed and added lines, without indentation: `- return x`, `+ return y`."""
    return tuple(f"{line[0]} {line[1:].strip()}" for line in mutant.diff())


def load(files: Iterable[Path]) -> list[Known]:
    """Return the entries of the files; raises ValueError for one that is not as described above."""
    found = []
    for file in files:
        for number, entry in enumerate(json.loads(file.read_text(encoding="utf-8"))):
            try:
                known = Known(**{**entry, "change": tuple(entry.get("change", ()))})
            except TypeError as error:
                raise ValueError(f"{file}: entry {number}: {error}") from error
            if known.kind not in KINDS or not known.reason:
                raise ValueError(
                    f"{file}: entry {number}: kind is one of {', '.join(KINDS)}, reason is a sentence"
                )
            found.append(known)
    return found


def about(mutant: Mutant, known: Sequence[Known]) -> Known | None:
    """Return the entry about a mutant, None if there is none."""
    return next((entry for entry in known if entry.matches(mutant)), None)
