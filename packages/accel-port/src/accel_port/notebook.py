# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Notebooks: their code cells as one module, and edits of it put back into the JSON text, byte for byte."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from accel_port.rules.base import Edit

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"-?\d[\d.eE+-]*|true|false|null|NaN|-?Infinity")
_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL)


@dataclass(frozen=True)
class _Piece:
    """A string of a cell's source: where it stands in the JSON text, and in the module's text."""

    start: int  # of the first character behind the quote
    offsets: tuple[int, ...]  # in the JSON text, of each character and of the end
    at: int  # of its first character in the module's text
    between: str  # what stands before it in a list of lines; empty if it is no line of a list


class Notebook:
    """A notebook's text. Raises `ValueError` if it is no notebook."""

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            value, end = _parse(text, 0)
        except (IndexError, RecursionError) as error:
            raise ValueError("it is no complete JSON") from error
        if text[end:].strip() or not isinstance(value, dict):
            raise ValueError("it is no notebook: not one JSON object")
        cells = value.get("cells")
        if cells is None and isinstance(value.get("worksheets"), list):
            raise ValueError("it is a notebook of version 3: open it in Jupyter and save it")
        if not isinstance(cells, list):
            raise ValueError("it is no notebook: it has no cells")
        self._pieces: list[_Piece] = []
        self.skipped: list[int] = []  # cells that are no Python, from 1
        parts: list[str] = []
        at = 0
        for number, cell in enumerate(cells, 1):
            if not isinstance(cell, dict) or _plain(cell.get("cell_type")) != "code":
                continue
            source = cell.get("source")
            strings = source if isinstance(source, list) else [source]
            code = ""
            if not all(isinstance(string, _String) for string in strings):
                raise ValueError(f"the source of cell {number} is no text")
            for line, string in enumerate(strings):
                between = f",{_space_before(text, strings[line or -1])}" if strings is source else ""
                self._pieces.append(_Piece(string.start, string.offsets, at + len(code), between))
                code += string.value
            masked = _masked(code)
            if not _parses(masked):
                self.skipped.append(number)
                masked = re.sub(r"[^\r\n]", " ", code)
            parts += [masked, "\n"]
            at += len(code) + 1
        self.source = "".join(parts)

    def edited(self, edits: Iterable[Edit]) -> str:
        """Return the notebook's text with edits of the module's text."""
        changes = []
        for edit in edits:
            start = self._position(edit.start, at_end=False)
            end = self._position(edit.end, at_end=edit.end > edit.start)
            # Jupyter's lists have a string for each line.
            piece = next(p for p in self._pieces if p.start <= start <= p.offsets[-1])
            lines = [
                json.dumps(line, ensure_ascii=False)[1:-1] for line in edit.text.splitlines(keepends=True)
            ]
            if edit.text.endswith("\n") and end < piece.offsets[-1]:
                lines.append("")
            changes.append((start, end, (f'"{piece.between}"' if piece.between else "").join(lines)))
        text, at = [], 0
        for start, end, new in sorted(changes, key=lambda c: c[:2]):
            text += [self._text[at:start], new]
            at = end
        return "".join([*text, self._text[at:]])

    def _position(self, index: int, at_end: bool) -> int:
        for piece in self._pieces:
            within = index - piece.at
            if 0 <= within < len(piece.offsets) - (0 if at_end else 1) and (not at_end or within > 0):
                return piece.offsets[within]
        last = self._pieces[-1]
        for piece in self._pieces:
            if piece.at + len(piece.offsets) - 1 == index:
                last = piece
        return last.offsets[-1]


def _space_before(text: str, string: Any) -> str:
    quote = gap = string.start - 1
    while text[gap - 1] in " \t\r\n":
        gap -= 1
    return text[gap:quote]


class _String:
    """A JSON string with the place of each of its characters."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.start = start + 1
        raw = text[start + 1 : end - 1]
        self.value: str = json.loads(text[start:end], strict=False)
        offsets = [start + 1 + match.start() for match in _ESCAPE.finditer(raw)] + [end - 1]
        if len(offsets) != len(self.value) + 1:  # a pair of \u escapes is one character
            offsets = [*_paired(raw, start + 1), end - 1]
        self.offsets = tuple(offsets)


def _paired(raw: str, start: int) -> list[int]:
    offsets = []
    high = False
    for match in _ESCAPE.finditer(raw):
        code = match[0]
        low = high and code.startswith("\\u") and 0xDC00 <= int(code[2:], 16) < 0xE000
        if not low:
            offsets.append(start + match.start())
        high = code.startswith("\\u") and 0xD800 <= int(code[2:], 16) < 0xDC00
    return offsets


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, _String) else value


def _parse(text: str, at: int) -> tuple[Any, int]:
    """Parse JSON with the places of its strings. Raises `ValueError`, `IndexError`."""
    at = _skip(text, at)
    if text[at] == "{":
        found: dict[str, Any] = {}
        at = _skip(text, at + 1)
        while text[at] != "}":
            key, at = _parse(text, at)
            at = _skip(text, at)
            if not isinstance(key, _String) or text[at] != ":":
                raise ValueError(f"no JSON at character {at}")
            found[key.value], at = _parse(text, at + 1)
            at = _comma(text, at, "}")
        return found, at + 1
    if text[at] == "[":
        items = []
        at = _skip(text, at + 1)
        while text[at] != "]":
            item, at = _parse(text, at)
            items.append(item)
            at = _comma(text, at, "]")
        return items, at + 1
    if match := _STRING.match(text, at):
        return _String(text, at, match.end()), match.end()
    if match := _SCALAR.match(text, at):
        return match[0], match.end()
    raise ValueError(f"no JSON at character {at}")


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _comma(text: str, at: int, closing: str) -> int:
    at = _skip(text, at)
    if text[at] == ",":
        return _skip(text, at + 1)
    if text[at] != closing:
        raise ValueError(f"no JSON at character {at}")
    return at


def _masked(code: str) -> str:
    """Return a cell with Jupyter's own lines made comments or statements of the same length."""
    if code.lstrip().startswith("%%"):
        first = code.lstrip().split("\n", 1)[0].split()[0]
        if first not in ("%%time", "%%timeit", "%%capture", "%%prun"):
            return re.sub(r"[^\r\n]", " ", code)
    return re.sub(r"^([ \t]*)([%!?][^\r\n]*)", _statement, code, flags=re.MULTILINE)


def _statement(match: re.Match[str]) -> str:
    length = len(match[2])
    text = "pass" if length >= len("pass") else "0"
    return match[1] + text + " " * (length - len(text))


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError):
        return False
    return True
