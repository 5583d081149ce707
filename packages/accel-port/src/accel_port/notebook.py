# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Notebooks: their code cells as one module, and edits of it put back into the JSON text, byte for byte."""

from __future__ import annotations

import ast
import json
import json.scanner
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from accel_port.rules.base import Edit, applied

#: A character of a JSON string; two \u of a surrogate pair are one.
_CHARACTER = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|[^\\]", re.DOTALL)


class _Place(NamedTuple):
    """Place in the JSON text of a character of the module's text."""

    start: int
    end: int
    closing: int  # the end of its string
    between: str  # what stands before its string in a list of lines; empty if it is not a line of a list


class Notebook:
    """A notebook's text. Raises `ValueError` if it is not a notebook."""

    def __init__(self, text: str) -> None:
        self._text = text
        value = _Decoder().decode(text)
        cells = value.get("cells") if isinstance(value, dict) else None
        if cells is None and isinstance(value, dict) and isinstance(value.get("worksheets"), list):
            raise ValueError("it is a notebook of version 3: open it in Jupyter and save it")
        if not isinstance(cells, list):
            raise ValueError("it is not a notebook: it has no cells")
        self._places: list[_Place] = []
        self.skipped: list[int] = []  # cells that are not Python, from 1
        parts: list[str] = []
        for number, cell in enumerate(cells, 1):
            kind = cell.get("cell_type") if isinstance(cell, dict) else None
            if not isinstance(kind, _String) or kind.value != "code":
                continue
            source = cell.get("source")
            strings = source if isinstance(source, list) else [source]
            code = ""
            if not all(isinstance(string, _String) for string in strings):
                raise ValueError(f"the source of cell {number} is not a text")
            place = _Place(0, 0, 0, "")
            for line, string in enumerate(strings):
                between = f",{_space_before(text, strings[line or -1])}" if strings is source else ""
                offsets = string.offsets()
                closing = offsets[-1]
                self._places += [_Place(*at, closing, between) for at in pairwise(offsets)]
                place = _Place(closing, closing, closing, between)
                code += string.value
            self._places.append(place)  # of the line end between two cells
            masked = _masked(code)
            if not _parses(masked):
                self.skipped.append(number)
                masked = re.sub(r"[^\r\n]", " ", code)
            parts += [masked, "\n"]
        self.source = "".join(parts)

    def edited(self, edits: Iterable[Edit]) -> str:
        """Return the notebook's text with edits of the module's text."""
        return applied(self._text, map(self._moved, edits))

    def _moved(self, edit: Edit) -> Edit:
        start, _, closing, between = self._places[edit.start]
        end = self._places[edit.end - 1].end if edit.end > edit.start else start
        # Jupyter's lists have a string for each line.
        lines = [json.dumps(line, ensure_ascii=False)[1:-1] for line in edit.text.splitlines(keepends=True)]
        if edit.text.endswith("\n") and end < closing:
            lines.append("")
        return Edit(start, end, (f'"{between}"' if between else "").join(lines))


def _space_before(text: str, string: Any) -> str:
    quote = gap = string.start - 1
    while text[gap - 1] in " \t\r\n":
        gap -= 1
    return text[gap:quote]


@dataclass(frozen=True)
class _String:
    """A JSON string, with its place in the text: behind the quote, and at the closing one."""

    value: str
    raw: str
    start: int

    def offsets(self) -> tuple[int, ...]:
        """Return the place of each of its characters, and of its end."""
        starts = (match.start() for match in _CHARACTER.finditer(self.raw))
        return (*(self.start + start for start in starts), self.start + len(self.raw))


class _Decoder(json.JSONDecoder):
    """Decodes JSON into objects whose strings have their places."""

    def __init__(self) -> None:
        super().__init__(strict=False)
        self.parse_string = self._placed
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]

    @staticmethod
    def _placed(text: str, start: int, strict: bool) -> tuple[_String, int]:
        value, end = json.decoder.scanstring(text, start, strict)  # type: ignore[attr-defined]
        return _String(value, text[start : end - 1], start), end


#: `%magic`, `!command`, `names = !command`, `name?`
_JUPYTER = re.compile(
    r"^([ \t]*|[ \t]*\w+[\w, \t]*=[ \t]*)([%!?][^\r\n]*)|^([ \t]*)(\w[\w.]*\?\??[ \t]*)$", re.MULTILINE
)


def _masked(code: str) -> str:
    """Return a cell with Jupyter's own lines made comments or statements of the same length."""
    if code.lstrip().startswith("%%"):
        first = code.lstrip().split("\n", 1)[0].split()[0]
        if first not in ("%%time", "%%timeit", "%%capture", "%%prun"):
            return re.sub(r"[^\r\n]", " ", code)
    return _JUPYTER.sub(_statement, code)


def _statement(match: re.Match[str]) -> str:
    before, line = (match[1], match[2]) if match[2] else (match[3], match[4])
    text = "0" if "=" in before or len(line) < len("pass") else "pass"
    return before + text + " " * (len(line) - len(text))


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError):
        return False
    return True
