# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The radar on a small DeepSpeed."""

import json
from pathlib import Path

import pytest

from ci import radar
from ci.problem import Problem

from .conftest import Repository


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git repository of a DeepSpeed that cannot be imported."""
    repository = Repository(tmp_path / "upstream")
    repository.root.mkdir()
    repository.git("init", "-q")
    for name in ("accelerator", "op_builder", "csrc"):
        repository.write(f"{name}/file.py")
    repository.write("version.txt", "0.19.9\n")
    repository.write("deepspeed/__init__.py", "import nowhere\n")
    repository.commit()
    return repository.root


def test_broken_commit_is_named(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(radar, "CHECKS", {radar.parity: ("cpu",)})
    assert radar.main([str(checkout), "--work", str(tmp_path / "work")]) == 1
    printed = capsys.readouterr()
    assert printed.out == "parity on cpu: 1 failures\n"
    assert "parity on cpu: no result fails with DeepSpeed" in printed.err
    assert "No module named 'nowhere'" in printed.err
    (folder,) = (tmp_path / "work").iterdir()
    assert (folder / "deepspeed-0.19.9.dist-info/METADATA").is_file()


def test_unknown_commit_is_a_problem(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="git rev-parse failed"):
        radar.export(checkout, "no-such-commit", tmp_path)


def test_single_failure_is_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [{"a": "busy", "b": "broken"}, {"b": "broken"}, {}]

    def check(device: str, folder: Path) -> radar.Failures:
        return answers.pop(0)

    monkeypatch.setattr(radar, "CHECKS", {check: ("cpu", "npu")})
    (problem,) = radar.problems(tmp_path)
    assert "check on cpu: b fails" in problem.what
    assert answers == []


@pytest.mark.parametrize(
    ("part", "failures"),
    [
        ({}, {}),
        ({"bridge": {"on": False, "reason": "too new"}}, {"bridge": "too new"}),
        ({"speedups": [{"name": "zero2-step", "on": False, "reason": "changed"}]}, {"zero2-step": "changed"}),
    ],
)
def test_doctor_names_what_is_off(
    part: dict[str, object], failures: radar.Failures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {"bridge": {"on": True}, "speedups": [{"name": "zero2-step", "on": True}], **part}
    monkeypatch.setattr(radar, "output", lambda *_: f"warning\n{json.dumps(document, indent=1)}")
    assert radar.doctor("cpu", tmp_path) == failures


def test_run_without_checks_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def output(device: str, folder: Path, *command: str) -> str:
        skipped = {"checks": [{"id": "a", "outcome": "skipped"}]}
        Path(command[command.index("--results") + 1]).write_text(json.dumps(skipped))
        return "1 skipped"

    monkeypatch.setattr(radar, "output", output)
    assert radar.suite("npu", tmp_path) == {"no check ran": "1 skipped"}


def test_hanging_child_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radar, "LIMIT", 1)
    printed = radar.output("cpu", tmp_path, "-S", "-c", "import time; time.sleep(3600)")
    assert printed == "killed after 1 s"
