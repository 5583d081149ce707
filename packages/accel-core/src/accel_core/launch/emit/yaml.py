# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The subset of YAML that a Kubernetes object needs: mappings, lists, quoted strings, blocks of lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

Value = Mapping[str, "Value"] | Sequence["Value"] | str | int | bool


def dump(*documents: Value) -> str:
    """Return the documents. Strings are ASCII; one with several lines is written as a block."""
    return "---\n".join("\n".join(_lines(document)) + "\n" for document in documents)


def _lines(value: Value) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _entry(f"{key}:", item)
    elif isinstance(value, str) or not isinstance(value, Sequence):
        yield json.dumps(value)
    else:
        for item in value:
            first, *rest = _lines(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)


def _entry(key: str, value: Value) -> Iterator[str]:
    if isinstance(value, str) and "\n" in value:
        yield f"{key} |"
        yield from (f"  {line}" for line in value.rstrip("\n").split("\n"))
    elif isinstance(value, str | int):
        yield f"{key} {json.dumps(value)}"
    else:
        yield key
        yield from (f"  {line}" for line in _lines(value))
