# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""docs/cli.md has every sub-command and every option of each; other text differs between releases of Python."""

import re
from pathlib import Path

from ci import command_help

PAGE = (Path(__file__).parents[2] / command_help.PAGE).read_text(encoding="utf-8")


def test_the_page_has_every_option_of_every_command_and_no_other() -> None:
    block = r"^##+ accel ([\w -]+?)(?: \([\w-]+\))?\n\n```text\n(.+?)^```$"
    shown = dict(re.findall(block, PAGE, re.MULTILINE | re.DOTALL))
    expected = {name: parser for name, _, parser in command_help.parsers()}
    assert shown.keys() == expected.keys(), "python -m ci.command_help"
    for name, parser in expected.items():
        options = {o for a in parser._actions for o in a.option_strings if o.startswith("--")}
        listed = set(re.findall(r"^  (?:-\w(?: \w+)?, )?(--[\w-]+)", shown[name], re.MULTILINE))
        hidden = {o for a in parser._actions for o in a.option_strings if a.help == "==SUPPRESS=="}
        assert listed <= options, name
        missing = {option for option in options - hidden if option not in shown[name]}
        assert missing == set(), f"{name}: python -m ci.command_help"
