# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The files of a recorded run: one of JSON lines for each rank, a header, then digests and events as they came."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from accel_compare.digest import Digest
from accel_core.errors import InvalidInput

#: Raised when the lines change their meaning.
SCHEMA = 1
FORWARD, BACKWARD, STEP, COLLECTIVE = "forward", "backward", "step", "collective"
PHASES = (FORWARD, BACKWARD, STEP, COLLECTIVE)
GRADIENT_OF_RESULT, GRADIENT_OF_PARAMETER = "gradient of result", "gradient of parameter"
PARAMETER = "parameter"
#: Begins the name of what an optimizer steps that is not a parameter of a module: of a group, several as one tensor.
FLATTENED = "group "
_LONGEST_LINE = 1_000_000
_FIELDS = [one.name for one in fields(Digest)]
_encode = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


class Key(NamedTuple):
    """Identity of an event, by which the same one is found in another run.

    step:  number of optimizer steps before.
    phase: one of PHASES.
    where: path of the module that computes, or name of a parameter.
    name:  its class, an operation, or a collective.
    nth:   which of the events that agree in all of this.
    """

    step: int
    phase: str
    where: str
    name: str
    nth: int

    def __str__(self) -> str:
        call = f", call {self.nth + 1}" if self.nth else ""
        return f"step {self.step}, {self.phase}, {self.where} ({self.name}{call})"


@dataclass(frozen=True)
class OpCall:
    """One computation: its inputs and results. Those of a module follow the events inside of it.

    inside: number of events before this one that belong to it.
    """

    key: Key
    inputs: tuple[Digest, ...]
    results: tuple[Digest, ...]
    inside: int = 0


@dataclass
class RankRecord:
    """Record of one rank.

    whole: its file has the end of the run, which a killed rank or a full one lacks.
    notes: what the recorder says of the run.
    """

    rank: int
    world: int
    device: str
    events: list[OpCall] = field(default_factory=list)
    whole: bool = False
    notes: list[str] = field(default_factory=list)


class Writer:
    """Writes the file of one rank: a digest once, however many events have it."""

    def __init__(self, path: Path, rank: int, world: int, device: str, limit: int) -> None:
        """limit: bytes after which nothing is written any more."""
        self._file = path.open("x", encoding="utf-8")  # another process may have taken this rank's
        self.rank, self._left, self._digests = rank, limit, 0
        self._line({"schema": SCHEMA, "rank": rank, "world": world, "device": device})
        self.flush()

    def digest(self, digest: Digest) -> int:
        """Write a digest; returns its number."""
        number, self._digests = self._digests, self._digests + 1
        # `asdict` copies each sample, which takes longer than the digest.
        self._line({"digest": number, **{name: getattr(digest, name) for name in _FIELDS}})
        return number

    def event(
        self, step: int, phase: str, where: str, name: str, inputs: list[int], results: list[int], inside: int
    ) -> None:
        """Write an event by the numbers of its digests."""
        self._line({"event": [step, phase, where, name], "in": inputs, "out": results, "inside": inside})

    def note(self, text: str) -> None:
        """Write a sentence for the reader of the comparison; nothing if it is empty."""
        if text:
            self._line({"note": text})

    def close(self) -> None:
        """Write the end."""
        if not self._file.closed:
            with contextlib.suppress(OSError):
                if not self.full:
                    self._file.write('{"end":true}\n')
                self._file.close()

    @property
    def full(self) -> bool:
        """True if nothing is written any more: the limit is reached, or the disk is full."""
        return self._left <= 0

    def flush(self) -> None:
        """Hand what is written to the system, so that a killed rank leaves it."""
        with contextlib.suppress(OSError):
            self._file.flush()

    def _line(self, content: dict[str, Any]) -> None:
        if self._left > 0:
            line = _encode(content) + "\n"
            self._left -= len(line)
            try:
                self._file.write(line)
            except OSError:  # a full disk must not end the program
                self._left = 0


def read(folder: Path) -> list[RankRecord]:
    """Return the ranks of a run, in order. Raises `InvalidInput`."""
    files = sorted(folder.glob("rank*.jsonl"))
    try:
        ranks = sorted((_rank(file) for file in files), key=lambda rank: rank.rank)
        numbers = [rank.rank for rank in ranks]
        if not ranks or (len(ranks), numbers) != (ranks[0].world, list(range(len(ranks)))):
            raise ValueError(f"files of ranks {numbers}")
    except (OSError, ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise InvalidInput(
            f"{folder} cannot be compared: {f'{type(error).__name__}: {error}'[:200]}; expected one whole "
            "file for each rank, written by `accel compare` of this release",
            do="record the run again; if no file was written, no torch module ran in it",
        ) from error
    return ranks


def _rank(file: Path) -> RankRecord:
    with file.open(encoding="utf-8") as lines:
        header = _plain(next(lines, ""))
        if header.get("schema") != SCHEMA:
            raise ValueError(f"{file.name}: schema {header.get('schema')!r}")
        rank = RankRecord(_count(header["rank"]), _count(header["world"]), str(header["device"]))
        digests: list[Digest] = []
        counts: Counter[tuple[int, str, str, str]] = Counter()
        # The last line of a killed rank may be cut off.
        for line in map(_plain, (line for line in lines if line.endswith("\n"))):
            if "digest" in line:
                digests.append(_digest(line))
            elif "event" in line:
                rank.events.append(_event(line, digests, counts))
            elif "note" in line:
                rank.notes.append(str(line["note"]))
            else:
                rank.whole = True
    return rank


def _plain(line: str) -> dict[str, Any]:
    if len(line) > _LONGEST_LINE:
        raise ValueError(f"a line of {len(line)} characters")
    plain = json.loads(line)
    if not isinstance(plain, dict):
        raise TypeError(f"a line is {type(plain).__name__}")
    return plain


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a number of something")
    return value


def _digest(line: dict[str, Any]) -> Digest:
    shape, sample = tuple(map(_count, line["shape"])), tuple(map(float, line["sample"]))
    names = ("norm", "projection", "low", "high", "places")
    norm, projection, low, high, places = (float(line[name]) for name in names)
    if not all(map(math.isfinite, (norm, projection, low, high, places))):
        raise ValueError("a digest that is not finite")
    counts = _count(line["nan"]), _count(line["inf"])
    return Digest(shape, str(line["dtype"]), norm, projection, low, high, *counts, places, sample)


def _event(line: dict[str, Any], digests: list[Digest], counts: Counter[tuple[int, str, str, str]]) -> OpCall:
    step, phase, where, name = line["event"]
    if phase not in PHASES:
        raise ValueError(f"phase {phase!r}")
    same = (_count(step), str(phase), str(where), str(name))
    counts[same] += 1
    inputs, results = (tuple(digests[_count(n)] for n in line[side]) for side in ("in", "out"))
    return OpCall(Key(*same, counts[same] - 1), inputs, results, _count(line["inside"]))
