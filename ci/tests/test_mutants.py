# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ci import mutants


def row(
    outcome: str, rule: str = "call", note: str = "2 checks execute these lines, none fails"
) -> dict[str, Any]:
    """A mutant as the testkit writes it."""
    return {
        "module": "accel_core.device.torch_device",
        "line": 84,
        "function": "Toy.synchronize",
        "rule": rule,
        "change": ["- self.wait(a | b)", "+ pass"],
        "outcome": outcome,
        "by": "",
        "note": note,
    }


def document(key: str, *rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The file of a run with these mutants."""
    rules: dict[str, dict[str, int]] = {}
    for one in rows:
        counts = rules.setdefault(
            one["rule"], dict.fromkeys(("killed", "survived", "equivalent", "broken at construction"), 0)
        )
        counts[one["outcome"]] += 1
    killed = sum(counts["killed"] for counts in rules.values())
    counted = killed + sum(counts["survived"] for counts in rules.values())
    return {
        "schema": 1,
        "key": key,
        "accelerator": f"accel_{key}:TOY",
        "simulated": True,
        "versions": {"torch": "2.13.0+cpu", "deepspeed": "0.19.8"},
        "options": {"quick": False, "checks": "", "sample": None, "seed": 0, "only": ""},
        "checks": 200,
        "rules": rules,
        "rate": killed / counted if counted else None,
        "left_out": 0,
        "mutants": list(rows),
        **more,
    }


def record(root: Path, *documents: dict[str, Any]) -> str:
    """Record the runs; returns the page."""
    (root / "docs/results").mkdir(parents=True, exist_ok=True)
    files = []
    for found in documents:
        files.append(root / f"{found['key']}.json")
        files[-1].write_text(json.dumps(found))
    assert mutants.main(["record", *map(str, files)], root) == 0
    return (root / mutants.PAGE).read_text()


def test_page_counts_by_accelerator_and_by_rule(tmp_path: Path) -> None:
    npu = document("npu", row("killed"), row("killed", "index"), row("survived"), row("equivalent"))
    cpu = document("cpu", row("killed"))
    text = record(tmp_path, npu, cpu)
    assert "| npu | simulated | 4 | 2 | 1 | 1 | 0 | 66.6 % | 0 | 66.6 % | 0 | 200 | torch 2.13.0," in text
    assert "| call | 1 of 1 | 1 of 2 |" in text
    assert "| index |  | 1 of 1 |" in text


def test_survivors_in_lines_that_no_check_executes_are_told_apart(tmp_path: Path) -> None:
    idle = row("survived", note="no check executes these lines")
    text = record(tmp_path, document("npu", row("killed"), row("survived"), idle, idle))
    assert "| npu | simulated | 4 | 1 | 3 | 0 | 0 | 25.0 % | 2 | 50.0 % | 0 | 200 |" in text
    nothing = record(tmp_path, document("npu", idle))
    assert "| npu | simulated | 1 | 0 | 1 | 0 | 0 | 0.0 % | 1 |  | 0 | 200 |" in nothing


def test_survivor_that_accelerators_share_stands_once(tmp_path: Path) -> None:
    text = record(tmp_path, document("npu", row("survived")), document("mlu", row("survived")))
    (line,) = [line for line in text.splitlines() if "Toy.synchronize" in line]
    assert "mlu, npu" in line
    assert "self.wait(a \\| b)" in line
    assert "2 checks execute these lines" in line


def test_reason_of_a_known_survivor_is_shown(tmp_path: Path) -> None:
    text = record(
        tmp_path, document("npu", row("survived", note="known: needs two hosts, which are not here"))
    )
    assert "| needs two hosts, which are not here |" in text


def test_rate_is_rounded_down_and_a_sample_is_named(tmp_path: Path) -> None:
    options = {"quick": True, "checks": "", "sample": 30, "seed": 7, "only": ""}
    text = record(tmp_path, document("npu", row("killed"), rate=0.94999, options=options))
    assert "94.9 %" in text
    assert "1 (sample, seed 7)" in text
    assert "200, without training" in text


def test_later_run_takes_the_place_of_the_former(tmp_path: Path) -> None:
    assert "Survivors" in record(tmp_path, document("npu", row("survived")))
    assert "Survivors" not in record(tmp_path, document("npu", row("killed")))


def test_file_of_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "suite.json"
    file.write_text(json.dumps({"schema": 1, "key": "npu", "checks": []}))
    assert mutants.main(["record", str(file)], tmp_path) == 2
    assert "not mutants" in capsys.readouterr().err
