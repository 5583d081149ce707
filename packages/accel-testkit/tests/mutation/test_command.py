# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel conformance mutate` on a small accelerator: what is killed, what survives, what it prints and returns."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from accel_testkit.mutation import cli, tree

HERE = Path(__file__).parent
PRETEND = HERE.parent / "suite" / "pretend"


def mutate(*options: str, toy: Path = HERE) -> subprocess.CompletedProcess[str]:
    """Run the command on the toy in a folder, with the checks of random states only."""
    path = os.pathsep.join(map(str, (toy, PRETEND)))
    base = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ACCEL_S"))}
    target = ["--accel-class", "toy_accelerator:TOY_Accelerator", "--checks", "test_random"]
    command = ["-m", "accel_core.cli", "conformance", "mutate", *target, *options]
    return subprocess.run(
        [sys.executable, *command],
        env={**base, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def run(*options: str) -> int:
    """Run the command in this process; the mutants still get one of their own."""
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return cli.run(parser.parse_args(["mutate", *options]))


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """A run over the toy's own functions, with one mutant declared equivalent."""
    folder = tmp_path_factory.mktemp("mutants")
    entry = {
        "function": "toy_accelerator.TOY_Accelerator.set_rng_state",
        "rule": "call",
        "change": ["- self.seen = new_state.clone()", "+ self.seen = (new_state)"],
        "kind": "equivalent",
        "reason": "nobody writes into it",
    }
    (folder / "known.json").write_text(json.dumps([entry]))
    options = ["--only", "toy_accelerator.TOY", "--jobs", "2", "--json", str(folder / "out.json")]
    done = mutate(*options, "--known", str(folder / "known.json"), "--at-least", "99")
    assert (folder / "out.json").is_file(), done.stdout + done.stderr
    return done, json.loads((folder / "out.json").read_text())


def outcomes(document: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Rule and last changed line of each mutant -> outcome."""
    return {(row["rule"], row["change"][-1][2:]): row["outcome"] for row in document["mutants"]}


def test_mutants_are_killed_by_the_check_that_is_about_them(whole: Any) -> None:
    document = whole[1]
    found = outcomes(document)
    assert found["call", "pass"] == "killed"
    assert found["argument", "super().set_rng_state(new_state)"] == "killed"
    assert found["swap", "super().set_rng_state((device_index), (new_state))"] == "killed"
    by = {row["by"].partition(".")[0] for row in document["mutants"] if row["outcome"] == "killed"}
    assert by == {"random"}


def test_mutant_that_nothing_checks_survives(whole: Any) -> None:
    done, document = whole
    assert outcomes(document)["state", "pass"] == "survived"
    assert "toy_accelerator:" in done.stdout
    assert "- self.seen = new_state.clone()" in done.stdout


def test_declared_mutant_is_not_run_and_not_counted(whole: Any) -> None:
    document = whole[1]
    assert outcomes(document)["call", "self.seen = (new_state)"] == "equivalent"
    counted = sum(row["killed"] + row["survived"] for row in document["rules"].values())
    assert counted < len(document["mutants"])
    killed = sum(row["killed"] for row in document["rules"].values())
    assert document["rate"] == killed / counted


def test_class_that_cannot_be_constructed_is_not_counted_as_killed(whole: Any) -> None:
    rows = [row for row in whole[1]["mutants"] if row["function"] == "TOY_Accelerator.__init__"]
    broken = {row["change"][0] for row in rows if row["outcome"] == "broken at construction"}
    assert broken == {"- super().__init__()"}


def test_too_few_killed_is_an_exit_status(whole: Any) -> None:
    assert whole[0].returncode == 1
    assert "% of the mutants" in whole[0].stdout


@pytest.mark.slow
def test_sample_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    options = ("--only", "toy_accelerator.TOY", "--sample", "2", "--seed", "3", "--json", str(out))
    first = mutate(*options)
    assert first.returncode == 0, first.stderr
    chosen = [row["change"] for row in json.loads(out.read_text())["mutants"]]
    assert len(chosen) == 2
    mutate(*options)
    assert [row["change"] for row in json.loads(out.read_text())["mutants"]] == chosen


def test_run_is_void_if_a_source_changes_meanwhile(tmp_path: Path) -> None:
    text = (HERE / "toy_accelerator.py").read_text()
    edit = "        with open(__file__, 'a') as file:\n            file.write('#')\n"
    head, method, tail = text.partition("        self.seen = new_state.clone()\n")
    assert method
    (tmp_path / "toy_accelerator.py").write_text(head + edit + method + tail)
    out = tmp_path / "out.json"
    done = mutate("--only", "set_rng_state state", "--json", str(out), toy=tmp_path)
    assert done.returncode == 2, done.stderr
    assert not out.exists()
    assert [line.split()[0] for line in done.stderr.splitlines()[-3:]] == ["found:", "expected:", "do:"]
    assert str(tmp_path / "toy_accelerator.py") in done.stderr


def test_every_edited_added_or_removed_file_is_a_change() -> None:
    before = {"kept.py": "1", "edited.py": "1", "removed.py": "1"}
    after = {"kept.py": "1", "edited.py": "2", "added.py": "1"}
    assert tree.changed(before, after) == ["added.py", "edited.py", "removed.py"]
    assert tree.changed(before, dict(before)) == []


def test_sources_are_those_of_the_packages_and_of_what_mutants_run_with() -> None:
    found = {Path(name).name for name in tree.digests(["json.decoder", "no_such_package"])}
    assert {"decoder.py", "torch_device.py", "test_random.py"} <= found


def test_run_that_cannot_begin_is_an_exit_status_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--accel-class", "no_such_module:TOY") == 2
    assert "before it had judged every mutant" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file"),
        ('[{"function": "f"}]', "entry 0"),
        ('[{"function": "f", "rule": "call", "kind": "equivalent", "reason": ""}]', "reason is a sentence"),
        ('[{"function": "f", "rule": "call", "kind": "fine", "reason": "so"}]', "kind is one of"),
    ],
)
def test_file_of_known_mutants_is_checked_first(
    text: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "known.json"
    if text is not None:
        file.write_text(text)
    assert run("--accel", "npu", "--known", str(file)) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--sample", "0"], ["--jobs", "-1"], []])
def test_wrong_usage_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    target = ["--accel", "npu"] if wrong else []
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["mutate", *target, *wrong])
    assert "error" in capsys.readouterr().err


def test_command_is_declared() -> None:
    points = importlib.metadata.entry_points(group="accel.commands", name="conformance")
    assert [point.load() for point in points] == [cli]
