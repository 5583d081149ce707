# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The page of everything that a vendor package may import of accel-core, written from the sources.

    python -m ci.public_surface write      docs/public-interface.md
    python -m ci.public_surface check      exits with 1 when the page is not what the sources say

Nothing is imported: griffe reads.
Why: what writes pages from griffe belongs to a documentation site; this is one Markdown file, read where the code is.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import griffe

from ci import public_api
from ci.problem import CheckError, Problem, report
from ci.public_api import CORE_SOURCE, Member

PAGE = "docs/public-interface.md"
HEAD = """# Public interface of accel-core

What a vendor package may import; everything else of `accel_core` is private and may change in any release. A change
here that breaks a vendor package comes with a new interface number and an entry in the changelog. The number: {number}.

Written from the sources by `python -m ci.public_surface write`. A class shows its constructor, or its bases where it
has none of its own, and lists what it adds to the bases that are on this page.
"""


def page(core: griffe.Module, packages: Sequence[str]) -> str:
    """The Markdown page."""
    texts = [HEAD.format(number=public_api.number(core) or "not set")]
    for module, names in public_api.sections(core, packages):
        lines = (line for name, member in names.items() for line in _lines(name, member, packages))
        texts.append("\n".join([f"## {module.path}\n\n{_sentence(module)}\n", *lines, ""]))
    return "\n".join(texts)


def _lines(name: str, member: Member, packages: Sequence[str]) -> Iterator[str]:
    yield _line("- ", name, member, _sentence(member))
    if isinstance(member, griffe.Class):
        for inner, of_class, sentence in _added(member, packages):
            yield _line("  - ", inner, of_class, sentence)


def _added(cls: griffe.Class, packages: Sequence[str]) -> Iterator[tuple[str, Member, str]]:
    """Public members of a class and of its private bases, but for those that a base on this page has."""
    bases = [base for base in cls.mro() if isinstance(base, griffe.Class)]
    public = [base for base in bases if _is_listed(base, packages)]
    hidden = {name for base in public for name in base.all_members}
    own = {
        name: m
        for base in reversed([b for b in bases if b not in public])
        for name, m in base.members.items()
    }
    own.update(cls.members)
    # Fields of a dataclass stand in its constructor.
    hidden |= {parameter.name for parameter in cls.parameters}
    for name, member in sorted(own.items()):
        if not member.is_public or name in hidden or re.fullmatch(r"__\w+__", name) or member.is_alias:
            continue
        described = [m for base in [cls, *bases] if (m := base.members.get(name)) is not None and m.docstring]
        yield name, member, _sentence(described[0]) if described else ""


def _is_listed(base: griffe.Class, packages: Sequence[str]) -> bool:
    """A public name of its module, in a public package."""
    module = base.module.path
    if any(part.startswith("_") for part in module.split(".")):
        return False
    return base.is_public and any(module == name or module.startswith(f"{name}.") for name in packages)


def _line(indent: str, name: str, member: Member, sentence: str) -> str:
    return f"{indent}`{_signature(name, member)}`" + (f": {sentence}" if sentence else "")


def _signature(name: str, member: Member) -> str:
    """One line: parameters and what is returned, a class's constructor or bases, an attribute's type or value."""
    if isinstance(member, griffe.Function):
        kinds = [kind for kind in ("async", "classmethod", "staticmethod") if kind in member.labels]
        return " ".join([*kinds, member.signature(name=name)])
    if isinstance(member, griffe.Class):
        bases = ", ".join(str(base) for base in member.bases)
        return f"class {member.signature(name=name) if '__init__' in member.members else f'{name}({bases})'}"
    if isinstance(member, griffe.Attribute):
        if member.annotation is not None:
            return f"{name}: {member.annotation}"
        value = str(member.value)
        return f"{name} = {value}" if len(value) <= 60 else name
    return name


def _sentence(member: Member) -> str:
    """The first sentence of the docstring, on one line."""
    text = " ".join(member.docstring.value.split("\n\n")[0].split()) if member.docstring else ""
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", text)[0]


def check(root: Path) -> Iterator[Problem]:
    """The page as it is, when it is not what the sources say."""
    file = root / PAGE
    if (file.read_text(encoding="utf-8") if file.exists() else "") != _current(root):
        yield Problem(
            what=f"{PAGE} is not what the sources say",
            found="another text",
            expected="the public names, signatures and first sentences of accel-core as they are",
            do="python -m ci.public_surface write, and commit it",
        )


def _current(root: Path) -> str:
    return page(public_api.load(root / CORE_SOURCE), public_api.settings(root).packages)


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ci.public_surface", description="The page of core's public names."
    )
    parser.add_argument("command", choices=["write", "check"])
    options = parser.parse_args(arguments)
    root = root or Path.cwd()
    try:
        if options.command == "write":
            (root / PAGE).write_text(_current(root), encoding="utf-8")
        return report(list(check(root)), f"{PAGE} says what there is")
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
