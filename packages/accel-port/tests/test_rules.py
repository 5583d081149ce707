# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Each rule does what its own examples say, for every target, and once is enough."""

import ast
from pathlib import Path

import pytest

from accel_port import report
from accel_port.porting import ImportRule, port
from accel_port.rules import RULES
from accel_port.rules.base import Level, Rule
from accel_port.rules_page import Example, examples, page

EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.name}-{number}")
    for rule in (*RULES, ImportRule())
    for number, example in enumerate(examples().get(rule.name, []), 1)
]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_example_becomes_what_it_says(rule: Rule, example: Example) -> None:
    assert port(example.before).text == example.after
    if example.torch is not None:
        assert port(example.before, "torch").text == example.torch


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
@pytest.mark.parametrize("target", ["deepspeed", "accel", "torch"])
def test_example_is_found_by_its_rule_and_ported_once(rule: Rule, example: Example, target: str) -> None:
    first = port(example.before, target)
    if target == "torch" and example.torch == example.before:
        return  # torch's own call is right there
    assert rule.name in {finding.rule for finding in first.findings}
    assert port(first.text, target).text == first.text
    ast.parse(first.text)


def test_target_accel_imports_from_accel_core() -> None:
    ported = port("import torch\n\ntorch.cuda.synchronize()\n", "accel")
    assert ported.text == (
        "import torch\nfrom accel_core import get_accelerator\n\nget_accelerator().synchronize()\n"
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_says_what_it_does(rule: Rule) -> None:
    assert rule.summary.endswith(".")
    assert rule.levels
    if set(rule.levels) != {Level.REPORTED}:
        assert examples()[rule.name]


def test_examples_belong_to_rules() -> None:
    assert set(examples()) <= {rule.name for rule in (*RULES, ImportRule())}


# --- the page of the rules is that of their classes, and every rule has a section that reports link to

DOCS = Path(__file__).parents[3] / "docs"


def test_page_of_the_rules_is_made_from_the_classes() -> None:
    assert (DOCS / "port-rules.md").read_text(encoding="utf-8") == page()


def test_reports_link_to_sections_of_that_page() -> None:
    headings = {line.removeprefix("## ") for line in page().splitlines() if line.startswith("## ")}
    names = [*(rule.name for rule in RULES), "imports"]
    assert {report.link(name).partition("#")[2] for name in names} <= headings
