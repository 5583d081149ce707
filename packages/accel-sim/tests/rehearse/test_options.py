# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the command does beside one rehearsal: its files, the comparison and the search, and their bad input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accel_sim.rehearse.record import Rehearsal

from .records import rank, rehearsal

#: Keeps its argument in MiB, divided among the ranks.
PROGRAM = """
import os, sys, torch
count = (int(sys.argv[sys.argv.index("--mib") + 1]) << 18) // int(os.environ["WORLD_SIZE"])
kept = torch.ones(count, device="npu")
model = torch.nn.Linear(8, 8).to("npu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(8, 8, device="npu")).sum().backward()
    optimizer.step()
"""


def accel(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "accel_core.cli", "rehearse", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture
def program(tmp_path: Path) -> str:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM, encoding="utf-8")
    return str(file)


def test_record_page_and_terminal_have_the_same_verdict(tmp_path: Path, program: str) -> None:
    record, html = tmp_path / "a.json", tmp_path / "a.html"
    done = accel(
        "npu", "--memory=1GiB", "--ranks=2", f"--json={record}", f"--html={html}", "--", program, "--mib", "64"
    )  # fmt: skip
    verdict = done.stdout.splitlines()[0]
    assert (done.returncode, verdict.partition(" with ")[0]) == (0, "fits"), done.stderr
    assert Rehearsal.from_json(record.read_text(encoding="utf-8")).verdict == "fits"
    assert f"<title>accel rehearse: {verdict}</title>" in html.read_text(encoding="utf-8")


def test_a_search_finds_the_fewest_ranks_and_the_first_value_that_fits(tmp_path: Path, program: str) -> None:
    record = tmp_path / "cheapest.json"
    done = accel(
        "npu", "--memory=1GiB", "--reserve=0", "--ranks=8", "--rank=first", "--search", "--fresh",
        "--vary=--mib=3000,1500", f"--json={record}", "--", program, "--mib", "1",
    )  # fmt: skip
    assert Rehearsal.from_json(record.read_text(encoding="utf-8")).ranks == 2
    assert done.returncode == 0, done.stderr
    assert "fits: 2 ranks, --mib 1500\nto change:\n  ranks: 8 -> 2\n  --mib 1500\n" in done.stdout


def test_a_search_in_which_nothing_fits_has_the_status_of_what_does_not_fit(program: str) -> None:
    done = accel("npu", "--memory=64MiB", "--ranks=2", "--search", "--fresh", "--", program, "--mib", "999")
    assert done.returncode == 3
    assert done.stdout.endswith("nothing that was tried fits\n")


def test_two_records_are_compared(tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, ranks in zip(files, (64, 32), strict=True):
        file.write_text(rehearsal(rank(), ranks=ranks).to_json(), encoding="utf-8")
    done = accel("--compare", *map(str, files))
    assert done.returncode == 0, done.stderr
    assert "ranks: 64, 8 a node; 3 steps -> 32, 8 a node; 3 steps" in done.stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--trials=0", "--search"], "--trials 0"),
        (["--vary=checkpointing", "--search"], "--vary 'checkpointing'"),
        (["--host-memory=lots", "--search"], "--host-memory 'lots'"),
        (["--json=/no/such/folder/a.json"], "/no/such/folder/a.json"),
        (["--html=/"], "/"),
        (["--per-node=0"], "--per-node 0"),
        (["--ranks=0"], "--ranks 0"),
        (["--rank=9"], "--rank 9"),
        (["--memory=7EiB"], "--memory '7EiB'"),
        (["--reserve=" + "9" * 400], "--reserve '999"),
    ],
)
def test_bad_options_are_named_before_anything_runs(program: str, words: list[str], found: str) -> None:
    done = accel("npu", "--memory=1GiB", *words, "--", program, "--mib", "1")
    assert done.returncode != 0
    assert "ACC-713" in done.stderr
    assert f"found:    {found}" in done.stderr


def test_a_launcher_is_not_rehearsed(program: str) -> None:
    for launcher in (["/usr/bin/torchrun"], ["-m", "torch.distributed.run"]):
        done = accel("npu:910b-64", "--", *launcher, "--nproc-per-node", "8", program)
        assert "expected: the script without its launcher, for which --ranks stands" in done.stderr


@pytest.mark.parametrize(("text", "code"), [(None, "ACC-713"), ("\x1b[2J", "ACC-711")])
def test_what_is_no_record_cannot_be_compared(tmp_path: Path, text: str | None, code: str) -> None:
    file = tmp_path / "a.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    done = accel("--compare", str(file), str(file))
    assert done.returncode != 0
    assert code in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("hosts", "ranks", "found"),
    [
        ("a slots=2\nb slots=2\n", "5", "no more than the 4 slots"),
        ("a slots=many\n", "2", "slots=many"),
        ("a slots=4\na slots=2\n", "2", "a slots=2"),
        ("a slots=0\n", "1", "a slots=0"),
        ("a slots=100\n", "1", "a slots=100"),
        ("# none\n", "2", "no host"),
    ],
)
def test_a_job_does_not_have_more_ranks_than_its_hostfile(tmp_path, program, hosts, ranks, found) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text(hosts, encoding="utf-8")
    done = accel("npu", "--memory=1GiB", f"--hostfile={hostfile}", f"--ranks={ranks}", "--", program)
    assert (done.returncode != 0, found in done.stderr) == (True, True), done.stderr


def test_ranks_and_nodes_are_the_hostfiles(tmp_path: Path, program: str) -> None:
    hostfile, record = tmp_path / "hosts", tmp_path / "a.json"
    hostfile.write_text("a slots=2  # first\n\nb slots=4\n", encoding="utf-8")
    options = ("--memory=1GiB", f"--hostfile={hostfile}", "--rank=first", f"--json={record}")
    accel("npu", *options, "--", program, "--mib", "1")
    found = Rehearsal.from_json(record.read_text(encoding="utf-8"))
    assert (found.ranks, found.per_node) == (6, 4)
