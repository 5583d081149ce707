# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The page of symptoms has every known trouble, each with a command and with the test in which it was tried."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[1] / "symptoms.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (.+?)\n(.+?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
#: 30 troubles that users of DeepSpeed reported (P), and 25 of users of its accelerators (F).
TROUBLES = {f"P{number:02}" for number in range(1, 31)} | {f"F{number:02}" for number in range(1, 26)}


def test_every_known_trouble_has_a_section() -> None:
    named = {name for line in re.findall(r"^<!-- (.+) -->$", PAGE, re.MULTILINE) for name in line.split()}
    assert named == TROUBLES


@pytest.mark.parametrize("symptom", SECTIONS)
def test_a_symptom_has_a_command_and_evidence(symptom: str) -> None:
    section = SECTIONS[symptom]
    assert section.startswith("\n<!-- "), "the troubles that it answers"
    assert re.search(r"^```\w*\n.+?^```$", section, re.MULTILINE | re.DOTALL), "a command"
    evidence = re.findall(r"\[[Tt](?:ested|oo)\]\((\S+?)\)", section)
    assert evidence
    assert {path for path in evidence if not (Path(__file__).parents[1] / path).is_file()} == set()
