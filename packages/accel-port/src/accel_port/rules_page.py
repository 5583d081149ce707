# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The page of the rules, made from their classes: `python -m accel_port.rules_page > docs/port-rules.md`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

from accel_port.porting import ImportRule
from accel_port.rules import RULES
from accel_port.rules.base import Level, Rule

_LEVELS = {
    Level.REWRITTEN: "rewritten",
    Level.REVIEW: "rewritten, to be reviewed",
    Level.REPORTED: "left and reported",
}
_HEAD = """\
# Rules of accel port

Made from the rules' classes by `python -m accel_port.rules_page`; [port.md](port.md) says how to use them. A use of
CUDA is *rewritten*, *rewritten, to be reviewed* (it runs; a person should look at it), or *left and reported*.
The examples are for `--target deepspeed`, and are tests.
"""


@dataclass(frozen=True)
class Example:
    """A program before the port, after it for the target deepspeed, and for the target torch if that is shown."""

    before: str
    after: str
    torch: str | None = None


def reasons() -> dict[str, str]:
    """Return why a rule does what it does, read from `rules.md`."""
    return {name: section.partition("```")[0].strip() for name, section in _sections()}


def examples() -> dict[str, list[Example]]:
    """Return the examples of each rule, read from `rules.md`."""
    found: dict[str, list[Example]] = {}
    for name, section in _sections():
        blocks = re.findall(r"^```python (\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        starts = [at for at, (kind, _) in enumerate(blocks) if kind == "before"]
        ends = [*starts[1:], len(blocks)]
        found[name] = [Example(**dict(blocks[s:e])) for s, e in zip(starts, ends, strict=True)]
    return found


def _sections() -> list[tuple[str, str]]:
    text = resources.files("accel_port").joinpath("rules.md").read_text("utf-8")
    return re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)


def page() -> str:
    """Return the page as Markdown."""
    rules = sorted([*RULES, ImportRule()], key=lambda rule: rule.name)
    table = ["| rule | what it does | uses are |", "| --- | --- | --- |"]
    table += [
        f"| [{rule.name}](#{rule.name}) | {rule.summary} | {'; '.join(_LEVELS[level] for level in rule.levels)} |"
        for rule in rules
    ]
    why, shown = reasons(), examples()
    sections = ["\n".join(_section(rule, why.get(rule.name, ""), shown.get(rule.name, []))) for rule in rules]
    return "\n".join([_HEAD, *table, "", *sections])


def _section(rule: Rule, why: str, examples: list[Example]) -> Iterator[str]:
    yield f"## {rule.name}\n"
    yield rule.summary + "\n"
    if why:
        yield why + "\n"
    for example in examples:
        if example.before == example.after:
            yield f"Left as it is:\n\n```python\n{_body(example.before)}```\n"
        else:
            yield f"```python\n{_body(example.before)}```\n\nbecomes\n\n```python\n{_body(example.after)}```\n"


def _body(code: str) -> str:
    """Return an example without the imports that every one has."""
    lines = code.splitlines(keepends=True)
    skipped = ("import torch\n", "from deepspeed.accelerator import get_accelerator\n")
    return "".join(line for line in lines if line not in skipped).lstrip("\n")


if __name__ == "__main__":
    sys.stdout.write(page())
