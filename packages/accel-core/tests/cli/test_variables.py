# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel env` shows the table that the code reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from accel_core import env
from accel_core.cli.main import main
from accel_core.selection.candidates import Discovery
from accel_core.vendor import INTERFACE_VERSION, Vendor

PAGE = Path(__file__).resolve().parents[4] / "docs/environment.md"


def test_json_has_every_variable_with_its_present_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACCEL_SKIP", "npu,mlu")
    monkeypatch.setenv("DS_ACCELERATOR", "")
    monkeypatch.delenv("ACCEL_STRICT", raising=False)
    assert main(["env", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows)[: len(env.VARIABLES)] == [variable.name for variable in env.VARIABLES]
    assert (rows["ACCEL_SKIP"]["set"], rows["ACCEL_SKIP"]["value"]) == (True, "npu,mlu")
    assert (rows["DS_ACCELERATOR"]["set"], rows["DS_ACCELERATOR"]["value"]) == (True, "")
    assert (rows["ACCEL_STRICT"]["set"], rows["ACCEL_STRICT"]["value"]) == (False, None)
    assert rows["ACCEL_STRICT"]["default"] == "0"


@pytest.mark.parametrize("columns", ["50", "200"])
def test_the_table_marks_what_is_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("ACCEL_SKIP", "npu")
    monkeypatch.delenv("ACCEL_STRICT", raising=False)
    assert main(["env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert any("ACCEL_SKIP" in line and "set: 'npu'" in line for line in lines)
    assert any("ACCEL_STRICT" in line and "default: 0" in line for line in lines)


def test_the_page_is_the_one_that_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--markdown"]) == 0
    assert PAGE.read_text(encoding="utf-8") == capsys.readouterr().out


def test_the_variables_of_installed_vendors_are_listed_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variable = env.Variable("ACCEL_TOY_CARDS", "2", "Cards of the toy.")
    toy = Vendor(
        key="toy",
        interface=INTERFACE_VERSION,
        accelerator="toy:Toy",
        probe="toy.probe",
        priority=1,
        distribution="accel-toy",
        requires="toy",
        variables=(variable,),
    )
    monkeypatch.setattr("accel_core.cli.variables.discover", lambda: Discovery((toy,), ()))
    assert main(["env", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["name"] == "ACCEL_TOY_CARDS"
