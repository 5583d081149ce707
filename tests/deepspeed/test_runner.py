# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's own tests on our accelerators, and the runner that judges by them."""

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location(
    "deepspeed_tests_runner", Path(__file__).with_name("runner.py")
)
runner = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(runner)


def _row(test, outcome, reason=""):
    return json.dumps({"test": test, "outcome": outcome, "reason": reason, "seconds": 0})


@pytest.mark.slow
@pytest.mark.skipif(
    "ACCEL_DEEPSPEED_TESTS" not in os.environ, reason="ACCEL_DEEPSPEED_TESTS names no checkout"
)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("subset", "accel"),
    [(name, accel) for name, subset in runner.subsets().items() for accel in subset["on"]],
)
def test_subset_fails_nowhere_but_where_the_table_says(subset, accel, tmp_path):
    runner.unpack(tmp_path)
    rows = runner.run(tmp_path, subset, accel, "ours")
    failed = [row for row in rows if row["outcome"] == "failed" and not runner.excuse(row, accel, "ours")]
    assert not failed
    assert any(row["outcome"] == "passed" for row in rows)  # a file that skips itself shows nothing


def test_each_known_failure_says_whose_and_why():
    for entry in runner.known():
        assert entry["whose"] in ("upstream", "simulator", "machine", "open")
        assert len(entry["reason"].split()) > 4
        assert set(entry.get("on", [])) <= {"cpu", "npu", "hpu", "xpu", "mlu", "sdaa", "cuda"}


def test_page_shows_what_ours_fails_and_what_it_adds(tmp_path, monkeypatch):
    (tmp_path / "checkout.txt").write_text("the tests of v1")
    monkeypatch.setattr(runner, "subsets", lambda: {"adam": {"on": ["cpu", "npu"]}})
    monkeypatch.setattr(
        runner, "known", lambda: [{"tests": "c", "whose": "upstream", "reason": "a known fault"}]
    )
    stock = [_row("a", "passed"), _row("b", "skipped"), _row("c", "failed", "x")]
    ours = [_row("a", "failed", "new fault"), _row("b", "passed"), _row("c", "failed", "x")]
    (tmp_path / "stock-cpu-adam.jsonl").write_text("\n".join(stock))
    (tmp_path / "ours-cpu-adam.jsonl").write_text("\n".join(ours))
    page = runner.page(tmp_path)
    assert "| adam | cpu | 1 / 1 / 1 | 1 / 2 / 0 | 1 | 1 |" in page
    assert "Not run: adam on npu." in page
    assert "| upstream | a known fault | cpu, ours: 1; cpu, stock: 1 |" in page
    assert "| **unexplained** | new fault | cpu, ours: 1 |" in page


def test_tests_are_those_of_the_nearest_release(tmp_path, monkeypatch):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a"]
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "tests").mkdir()
    for version in ("0.1.0", "0.1.4", "0.3.0"):
        (tmp_path / "version.txt").write_text(version)
        (tmp_path / "tests" / "which").write_text(version)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", version], check=True)
        subprocess.run([*git, "tag", f"v{version}"], check=True)
    monkeypatch.setenv("ACCEL_DEEPSPEED_TESTS", str(tmp_path))
    for installed, expected in (("0.1.0", "0.1.0"), ("0.1.6", "0.1.4"), ("0.3.1", "0.3.0")):
        monkeypatch.setattr(runner.importlib.metadata, "version", lambda name, installed=installed: installed)
        note = runner.unpack(tmp_path / installed)
        assert (tmp_path / installed / "checkout" / "tests" / "which").read_text() == expected
        assert ("no tag of" in note) == (installed != expected)
