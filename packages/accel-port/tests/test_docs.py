# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The page of the rules is that of their classes, and every rule has a section that reports link to."""

from pathlib import Path

from accel_port import report
from accel_port.rules import RULES
from accel_port.rules_page import page

DOCS = Path(__file__).parents[3] / "docs"


def test_page_of_the_rules_is_made_from_the_classes() -> None:
    assert (DOCS / "port-rules.md").read_text(encoding="utf-8") == page()


def test_reports_link_to_sections_of_that_page() -> None:
    headings = {line.removeprefix("## ") for line in page().splitlines() if line.startswith("## ")}
    assert {
        report.link(name).partition("#")[2] for name in [*(rule.name for rule in RULES), "imports"]
    } <= headings
