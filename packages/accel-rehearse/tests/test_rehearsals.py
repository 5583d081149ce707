# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel rehearse` on small programs: verdicts, phases, places, and programs that cannot be rehearsed as they are.

What the command does beside one rehearsal: its files, the comparison and the search, and their bad input.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from accel_rehearse.record import Rehearsal

from . import records

ACCEL = [sys.executable, "-m", "accel_core.cli", "rehearse"]

TRAIN = """
import torch
import torch.distributed as dist

dist.init_process_group()
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).to("npu")
optimizer = torch.optim.AdamW(model.parameters())
for step in range(100):
    loss = model(torch.ones(512, 1024, device="npu")).square().mean()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
"""


def accel(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ACCEL, *words], capture_output=True, text=True, check=False, timeout=600)


def rehearse(folder: Path, source: str, *options: str) -> tuple[int, Rehearsal, str]:
    """Return the exit status, the record and what the command wrote."""
    program, record = folder / "train.py", folder / "record.json"
    program.write_text(source)
    here = ("npu", "--memory=1GiB", "--reserve=0", "--ranks=4", f"--json={record}")
    done = accel(*here, *options, "--", str(program))
    text = done.stdout + done.stderr
    assert record.is_file(), text
    return done.returncode, Rehearsal.from_json(record.read_text()), text


def test_a_plain_program_fits_and_its_memory_is_named(tmp_path: Path) -> None:
    status, rehearsal, _ = rehearse(tmp_path, TRAIN)
    assert status == 0
    assert [(rank.rank, rank.role) for rank in rehearsal.ranks_rehearsed] == [(0, "first"), (3, "last")]
    (rank, _) = rehearsal.ranks_rehearsed
    phases = {phase.name: phase for phase in rank.phases}
    parameters = 4 * 2 * (1024 * 1024 + 1024)
    assert phases["backward"].by_kind["parameters"] == parameters
    assert phases["forward"].by_kind["optimizer states"] >= 2 * parameters
    assert phases["step"].by_kind["gradients"] == parameters
    assert phases["backward"].source == "train.py:10"
    assert rank.host.pageable > 0
    (call,) = [each for each in rank.collectives if each.operation == "all_reduce"]
    assert (call.group, call.size, call.calls, call.bytes) == ("world", 4, 4, parameters)
    assert rank.timeline


def test_out_of_memory_is_named_with_phase_module_and_line(tmp_path: Path) -> None:
    status, rehearsal, _ = rehearse(tmp_path, TRAIN.replace("512, 1024", "200000, 1024"))
    assert status == 3
    (rank,) = rehearsal.ranks_rehearsed
    assert rank.outcome == "out of memory"
    assert rank.failure is not None
    assert (rank.failure.phase, rank.failure.module, rank.failure.source) == ("forward", "0", "train.py:9")
    assert rank.failure.asked == 200000 * 1024 * 4
    assert "NPU out of memory" in rank.failure.message


def test_a_program_that_fails_is_no_verdict(tmp_path: Path) -> None:
    status, rehearsal, text = rehearse(tmp_path, "import torch\nraise ValueError('no data')\n")
    assert status == 1
    failure = rehearsal.ranks_rehearsed[0].failure
    assert failure is not None
    assert (failure.message, failure.source) == ("ValueError: no data", "train.py:2")
    assert "no data" in text


def test_a_program_without_a_step_says_so(tmp_path: Path) -> None:
    status, rehearsal, _ = rehearse(tmp_path, "import torch\nkept = torch.ones(1 << 20, device='npu')\n")
    assert status == 0
    assert "without a step" in rehearsal.ranks_rehearsed[0].notes[0]
    assert rehearsal.ranks_rehearsed[0].requested == 4 << 20


def test_decisions_by_results_and_compiled_code_are_noted_with_their_line(tmp_path: Path) -> None:
    source = TRAIN.replace("    loss.backward()", "    if loss > 3: break\n    loss.backward()")
    source = source.replace("optimizer = torch", "model = torch.compile(model)\noptimizer = torch")
    status, rehearsal, _ = rehearse(tmp_path, source, "--rank=first")
    assert status == 0
    notes = "\n".join(rehearsal.ranks_rehearsed[0].notes)
    assert "decides by a result of the device at train.py:11" in notes
    assert "rehearsed eager" in notes


def test_a_step_has_its_collectives_also_if_it_is_the_only_one(tmp_path: Path) -> None:
    source = TRAIN.replace("    loss =", "    import deepspeed.runtime.zero.muon.original_muon\n    loss =")
    _, rehearsal, _ = rehearse(tmp_path, source, "--rank=first", "--steps=1")
    (rank,) = rehearsal.ranks_rehearsed
    assert [call.calls for call in rank.collectives if call.operation == "all_reduce"] == [4]
    assert not any("torch.compile" in note for note in rank.notes)


def test_a_checkpoint_is_sized_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    source = f"{TRAIN}    torch.save(obj=model.state_dict(), f={str(path)!r})\n"
    status, rehearsal, _ = rehearse(tmp_path, source, "--rank=first")
    assert (status, path.exists()) == (0, False)
    assert any("model.pt: 0.008 GiB, not written" in note for note in rehearsal.ranks_rehearsed[0].notes)


def test_too_few_addresses_on_this_machine_are_no_verdict(tmp_path: Path) -> None:
    source = """
import resource, torch
resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))
torch.ones(1, device="npu")
"""
    status, rehearsal, _ = rehearse(tmp_path, source, "--rank=first")
    failure = rehearsal.ranks_rehearsed[0].failure
    assert failure is not None
    assert (status, "ulimit -v" in failure.message) == (1, True)


RUN = {
    "finds its path and the names of its arguments": """
import os, sys, torch
assert os.getcwd() not in sys.path, sys.path
class Model(torch.nn.Module):
    def forward(self, module, stock):
        return module + stock
assert Model()(module=1, stock=2) == 3
""",
    "reads many rows of a large host tensor": """
import numpy, torch
rows = torch.from_numpy(numpy.ones((20_000, 512), dtype="int64"))
assert torch.stack([rows[i] for i in range(64)]).sum() == 64 * 512
torch.ones(1, device="npu")
""",
    "handles out of memory": """
import torch
try:
    torch.empty(2 << 30, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError:
    kept = torch.empty(1 << 29, dtype=torch.uint8, device="npu")
""",
}


@pytest.mark.parametrize("name", RUN)
def test_a_program_runs_as_without_a_rehearsal(tmp_path: Path, name: str) -> None:
    status, rehearsal, text = rehearse(tmp_path, RUN[name], "--rank=first")
    assert status == 0, text
    assert ("memory" in name) == (rehearsal.ranks_rehearsed[0].requested == 1 << 29)


def test_peaks_that_the_program_resets_still_count(tmp_path: Path) -> None:
    source = """
import torch
kept = torch.empty(1 << 29, dtype=torch.uint8, device="npu")
del kept
torch.npu.empty_cache()
torch.npu.reset_peak_memory_stats()
"""
    _, rehearsal, _ = rehearse(tmp_path, source, "--rank=first")
    (rank,) = rehearsal.ranks_rehearsed
    assert (rank.requested, rank.reserved >= rank.allocated >= 1 << 29) == (1 << 29, True)


LOOP = """
import torch
weight = torch.nn.Parameter(torch.ones(70 << 20, device="npu"))
optimizer = torch.optim.AdamW([weight], foreach=False)
def loss():
    print("loss", flush=True)
    optimizer.zero_grad()
    (found := weight.sum()).backward()
    return found
for step in range(10):
    optimizer.step(loss)
"""


@pytest.mark.parametrize("closure", [True, False])
def test_a_program_without_modules_ends_after_its_steps(tmp_path: Path, closure: bool) -> None:
    source = LOOP.replace("70 <<", "1 <<")
    source = source if closure else source.replace("optimizer.step(loss)", "loss()\n    optimizer.step()")
    status, rehearsal, text = rehearse(tmp_path, source, "--rank=first", "--steps=2", "--output")
    (rank,) = rehearsal.ranks_rehearsed
    assert (status, text.count("loss\n")) == (0, 2 if closure else 3)
    assert {"backward", "step"} <= {phase.name for phase in rank.phases}


def test_out_of_memory_in_a_plain_optimizer_is_in_its_step(tmp_path: Path) -> None:
    status, rehearsal, _ = rehearse(tmp_path, LOOP, "--rank=first")
    failure = rehearsal.ranks_rehearsed[0].failure
    assert failure is not None
    assert (status, failure.phase, failure.source) == (3, "step", "train.py:11")


def test_what_is_not_computed_is_zero_and_the_reserve_is_not_free(tmp_path: Path) -> None:
    source = """
import torch
import torch.distributed as dist
dirty = [torch.full((50_000,), 7, dtype=torch.int32) for _ in range(20)]
del dirty
assert torch.zeros(50_000, dtype=torch.int32, device="npu").cpu().max() == 0
free, total = torch.npu.mem_get_info()
assert total - free == 256 << 20, total - free
dist.init_process_group()
part = torch.empty(4, device="npu")
dist.scatter(part, [part] * 4 if dist.get_rank() == 0 else None)
"""
    status, rehearsal, text = rehearse(tmp_path, source, "--reserve=254MiB")
    assert status == 0, text
    assert [rank.unanswered for rank in rehearsal.ranks_rehearsed] == [0, 1]


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_gives_the_report_so_far(tmp_path: Path, ended_by: signal.Signals) -> None:
    started = tmp_path / "started"
    program, record = tmp_path / "train.py", tmp_path / "record.json"
    program.write_text(
        f"import pathlib, signal, torch\nkept = torch.ones(1 << 20, device='npu')\n"
        f"pathlib.Path({str(started)!r}).touch()\nsignal.pause()\n"
    )
    process = subprocess.Popen(
        [*ACCEL, "npu", "--memory=1GiB", "--ranks=4", f"--json={record}", "--", str(program)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )  # fmt: skip
    while not started.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(ended_by)
    text, _ = process.communicate()
    assert process.returncode == 130, text
    rehearsal = Rehearsal.from_json(record.read_text())
    assert rehearsal.interrupted
    assert rehearsal.ranks_rehearsed[0].requested == 4 << 20


def test_processes_of_the_program_are_named(tmp_path: Path) -> None:
    source = """
import multiprocessing, subprocess, sys, torch
subprocess.run([sys.executable, '-c', 'pass'])
multiprocessing.get_context("fork").Process(target=print).start()
next(iter(torch.utils.data.DataLoader([1], num_workers=1)))
"""
    _, rehearsal, text = rehearse(tmp_path, source, "--rank=first")
    notes = [note for note in rehearsal.ranks_rehearsed[0].notes if "that process is not rehearsed" in note]
    assert [note.partition(" at ")[2].partition(" ")[0] for note in notes] == ["train.py:3:", "train.py:4:"]
    assert "to spare, but no step was taken" in text


def test_segments_that_grow_need_no_whole_range_of_addresses(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    source = """
import torch
parts = [torch.empty(100 << 20, dtype=torch.uint8, device="npu") for _ in range(10)]
del parts[::2]
torch.empty(400 << 20, dtype=torch.uint8, device="npu")
"""
    status, rehearsal, _ = rehearse(tmp_path, source, "--rank=first")
    assert (status, rehearsal.ranks_rehearsed[0].requested) == (0, 1000 << 20)


def test_shapes_that_depend_on_data_are_listed(tmp_path: Path) -> None:
    source = "import torch\nfound = torch.ones(1 << 20, device='npu').nonzero()\nprint(found.shape)\n"
    _, rehearsal, _ = rehearse(tmp_path, source, "--rank=first")
    assert any("aten::nonzero" in name for name in rehearsal.ranks_rehearsed[0].computed)


# Files, the comparison and the search

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
        "npu", "--memory=1GiB", "--reserve=0", "--ranks=8", "--rank=first", "--search",
        "--vary=--mib=3000,1500", f"--json={record}", "--", program, "--mib", "1",
    )  # fmt: skip
    assert Rehearsal.from_json(record.read_text(encoding="utf-8")).ranks == 2
    assert done.returncode == 0, done.stderr
    assert "fits: 2 ranks, --mib 1500\nto change:\n  ranks: 8 -> 2\n  --mib 1500\n" in done.stdout


def test_a_search_in_which_nothing_fits_has_the_status_of_what_does_not_fit(program: str) -> None:
    done = accel("npu", "--memory=64MiB", "--ranks=2", "--search", "--", program, "--mib", "999")
    assert done.returncode == 3
    assert done.stdout.endswith("nothing that was tried fits\n")


def test_two_records_are_compared(tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, ranks in zip(files, (64, 32), strict=True):
        file.write_text(records.rehearsal(records.rank(), ranks=ranks).to_json(), encoding="utf-8")
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
