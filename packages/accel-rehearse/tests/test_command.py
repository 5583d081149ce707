# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The options of `accel rehearse`: what makes a job, and what is refused before anything runs."""

import argparse
from pathlib import Path

import pytest

from accel_core.errors import InvalidInput
from accel_rehearse import command, job
from accel_rehearse.record import DryJob, Rehearsal

from . import records


def accel(*words: str) -> int:
    """Run `accel rehearse` in this process; return its exit status."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


@pytest.fixture
def program(tmp_path: Path) -> str:
    file = tmp_path / "train.py"
    file.write_text("pass\n", encoding="utf-8")
    return str(file)


def test_two_records_are_compared(tmp_path: Path, capsys) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, ranks in zip(files, (64, 32), strict=True):
        file.write_text(records.rehearsal(records.rank(), ranks=ranks).to_json(), encoding="utf-8")
    assert accel("--compare", *map(str, files)) == 0
    assert "ranks: 64, 8 a node; 3 steps -> 32, 8 a node; 3 steps" in capsys.readouterr().out


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
    with pytest.raises(InvalidInput, match="ACC-701") as refused:
        accel("npu", "--memory=1GiB", *words, "--", program, "--mib", "1")
    assert f": {found}" in str(refused.value)


@pytest.mark.parametrize("launcher", [["/usr/bin/torchrun"], ["-m", "torch.distributed.run"]])
def test_a_launcher_is_not_rehearsed(program: str, launcher: list[str]) -> None:
    with pytest.raises(InvalidInput, match="the script without its launcher, for which --ranks stands"):
        accel("npu:910b-64", "--", *launcher, "--nproc-per-node", "8", program)


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
    with pytest.raises(InvalidInput, match=found):
        accel("npu", "--memory=1GiB", f"--hostfile={hostfile}", f"--ranks={ranks}", "--", program)


def test_ranks_and_nodes_are_the_hostfiles(tmp_path: Path, program: str, monkeypatch) -> None:
    requests: list[DryJob] = []
    monkeypatch.setattr(
        job, "rehearse", lambda request, _say: requests.append(request) or records.rehearsal(records.rank())
    )
    hostfile = tmp_path / "hosts"
    hostfile.write_text("a slots=2  # first\n\nb slots=4\n", encoding="utf-8")
    accel("npu", "--memory=1GiB", f"--hostfile={hostfile}", "--", program)
    assert (requests[0].ranks, requests[0].per_node) == (6, 4)


def test_search_writes_the_record_of_the_cheapest(tmp_path: Path, program: str, monkeypatch, capsys) -> None:
    def rehearse(request: DryJob, _say: object = None) -> Rehearsal:
        """Reserve --mib, divided among the ranks."""
        size = int(request.program[request.program.index("--mib") + 1]) << 20
        sizes = {"profile": request.profile, "reserve": request.reserve, "ranks": request.ranks}
        return records.rehearsal(records.rank(reserved=size // request.ranks), **sizes)

    monkeypatch.setattr(job, "rehearse", rehearse)
    search = ("npu", "--memory=1GiB", "--reserve=0", "--ranks=8", "--search")
    written = f"--json={tmp_path / 'a.json'}"
    assert accel(*search, "--vary=--mib=3000,1500", written, "--", program, "--mib", "1") == 0
    assert "fits: 2 ranks, --mib 1500\nto change:\n  ranks: 8 -> 2\n  --mib 1500\n" in capsys.readouterr().out
    assert Rehearsal.from_json((tmp_path / "a.json").read_text(encoding="utf-8")).ranks == 2
    assert accel(*search, "--", program, "--mib", "9999") == 3
    assert capsys.readouterr().out.endswith("nothing that was tried fits\n")
    assert accel(*search, "--host-memory=1GiB", "--", program, "--mib", "1") == 3
