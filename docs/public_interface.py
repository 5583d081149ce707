# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The reference of public modules, read from their sources: nothing of ours, and no torch, is imported.

A page has the line `<!-- reference: accel_core.vendor -->` where the reference of that module belongs.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]
#: Modules with pages of their own: what accel_core exports of them is there.
PUBLIC = ("vendor", "interface", "device", "op_builder", "errors")
PLACE = re.compile(r"^<!-- reference: ([\w.]+) -->$", re.MULTILINE)
#: A line such as `key:   the value of DS_ACCELERATOR` in a docstring's list of fields or parameters.
_FIELD = re.compile(r"(?=[a-z])([\w, ]{1,40}):\s+(?=\S)")


def insert(page: str) -> str:
    """Replace each mark of a page by the reference of its module."""
    return PLACE.sub(lambda found: "\n".join(reference(found[1])), page)


def reference(module: str) -> Iterator[str]:
    """Yield MyST lines that document the names in the module's `__all__`."""
    package, _, name = module.partition(".")
    facade = _package(package)[name] if name else _package(package)
    names = {str(name) for name in facade.exports or ()}
    if module == "accel_core":
        names -= {str(name) for other in PUBLIC for name in facade[other].exports}
    yield f"```{{py:currentmodule}} {module}\n```\n"
    yield _prose(facade)
    for name in sorted(names, key=lambda name: (name.isupper(), name.lower())):
        member = facade[name]
        yield from _entry(member.final_target if member.is_alias else member, str(name))


@cache
def _package(name: str) -> griffe.Module:
    loader = griffe.GriffeLoader(search_paths=[ROOT / "packages" / name.replace("_", "-") / "src"])
    package = loader.load(name)
    loader.resolve_aliases(implicit=True)
    assert isinstance(package, griffe.Module)
    return package


def _entry(item: griffe.Object, name: str) -> Iterator[str]:
    if isinstance(item, griffe.Class):
        bases = ", ".join(str(base) for base in item.bases if str(base) not in ("ABC", "Protocol"))
        # Without parentheses where there are none: Sphinx shows them as the arguments of the constructor.
        yield f":::::{{py:class}} {name}\n"
        yield f"Bases: {bases}\n" if bases else ""
        yield _prose(item)
        if "Enum" in {str(base) for base in item.bases}:
            yield from _members(item)
        for member in item.members.values():
            if not member.is_alias and member.is_public and member.docstring:
                yield from _entry(member, member.name)
        yield ":::::\n"
    elif isinstance(item, griffe.Function):
        kind = "method" if isinstance(item.parent, griffe.Class) else "function"
        yield f"::::{{py:{kind}}} {item.signature()}\n"
        yield _prose(item)
        yield "::::\n"
    elif isinstance(item, griffe.Attribute):
        kind = "attribute" if isinstance(item.parent, griffe.Class) else "data"
        yield f"::::{{py:{kind}}} {name}\n"
        yield f":type: {item.annotation}\n" if item.annotation else ""
        yield _prose(item)
        yield "::::\n"


def _members(enum: griffe.Class) -> Iterator[str]:
    """Yield the members of an enum: of a value with a sentence, the sentence."""
    for name, member in enum.members.items():
        if isinstance(member, griffe.Attribute) and name.isupper():
            value = ast.literal_eval(str(member.value))
            yield f"- `{name}`: {value[-1] if isinstance(value, tuple) else value}"
    yield ""


def _prose(item: griffe.Object) -> str:
    """Return the docstring as Markdown: its lists of fields become lists."""
    text = item.docstring.value if item.docstring else ""
    paragraphs = re.split(r"\n\s*\n", textwrap.dedent(text))
    return "\n\n".join(_fields(part) if _FIELD.match(part) else part for part in paragraphs) + "\n"


def _fields(paragraph: str) -> str:
    lines = []
    for line in paragraph.splitlines():
        found = None if line.startswith(" ") else _FIELD.match(line)
        lines.append(f"- `{found[1]}`: {line[found.end() :]}" if found else f"  {line.strip()}")
    return "\n".join(lines)
