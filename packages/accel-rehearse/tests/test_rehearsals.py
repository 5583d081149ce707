# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel rehearse` on small programs: verdicts, phases, places, and programs that cannot be rehearsed as they are."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from accel_rehearse.record import Rehearsal

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


NOTED = (
    TRAIN.replace("optimizer = torch", "model = torch.compile(model)\noptimizer = torch")
    .replace("loss.backward()", "loss.backward()\n    if loss > 3: break")
    .replace("dist.init", "import os, subprocess, sys; dist.init")
    + "    torch.save(obj=model.state_dict(), f='model.pt')\n    subprocess.run([sys.executable, '-c', 'pass'])\n"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, int, Rehearsal, str]:
    """Rehearse a program that trains; return its folder and what was found."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, *rehearse(folder, NOTED, f"--html={folder / 'page.html'}")


def test_a_plain_program_fits_and_its_memory_is_named(trained) -> None:
    _, status, rehearsal, _ = trained
    assert status == 0
    assert [(rank.rank, rank.role) for rank in rehearsal.ranks_rehearsed] == [(0, "first"), (3, "last")]
    (rank, _) = rehearsal.ranks_rehearsed
    phases = {phase.name: phase for phase in rank.phases}
    parameters = 4 * 2 * (1024 * 1024 + 1024)
    assert phases["backward"].by_kind["parameters"] == parameters
    assert phases["forward"].by_kind["optimizer states"] >= 2 * parameters
    assert phases["step"].by_kind["gradients"] == parameters
    assert phases["backward"].source == "train.py:11"
    assert rank.host.pageable > 0
    (call,) = [each for each in rank.collectives if each.operation == "all_reduce"]
    assert (call.group, call.size, call.calls, call.bytes) == ("world", 4, 4, parameters)
    assert rank.timeline


def test_what_cannot_be_followed_is_noted_with_its_line(trained) -> None:
    notes = "\n".join(trained[2].ranks_rehearsed[0].notes)
    assert "decides by a result of the device at train.py:12" in notes
    assert "rehearsed eager" in notes
    assert "model.pt: 0.008 GiB, not written" in notes
    assert "starts python at train.py:18: that process is not rehearsed" in notes.replace(
        sys.executable, "python"
    )
    assert not Path("model.pt").exists()


def test_record_page_and_terminal_have_the_same_verdict(trained) -> None:
    folder, _, rehearsal, text = trained
    verdict = next(line for line in text.splitlines() if line.startswith("fits with "))
    assert rehearsal.verdict == "fits"
    assert f"<title>accel rehearse: {verdict}</title>" in (folder / "page.html").read_text(encoding="utf-8")


SMALL = """
import os, sys, torch
import multiprocessing, numpy
import torch.distributed as dist

assert os.getcwd() not in sys.path, sys.path

class Model(torch.nn.Module):
    def forward(self, module, stock):
        return module + stock
assert Model()(module=1, stock=2) == 3

dirty = [torch.full((50_000,), 7, dtype=torch.int32) for _ in range(20)]
del dirty
assert torch.zeros(50_000, dtype=torch.int32, device="npu").cpu().max() == 0
free, total = torch.npu.mem_get_info()
assert total - free == 256 << 20, total - free

rows = torch.from_numpy(numpy.ones((20_000, 512), dtype="int64"))
assert torch.stack([rows[i] for i in range(64)]).sum() == 64 * 512

try:
    torch.empty(2 << 30, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError:
    kept = torch.empty(1 << 29, dtype=torch.uint8, device="npu")
    del kept
torch.npu.empty_cache()
torch.npu.reset_peak_memory_stats()
torch.ones(1 << 20, device="npu").nonzero()

dist.init_process_group()
part = torch.empty(4, device="npu")
dist.scatter(part, [part] * 4 if dist.get_rank() == 0 else None)
multiprocessing.get_context("fork").Process(target=print).start()
next(iter(torch.utils.data.DataLoader([1], num_workers=1)))
"""


def test_a_program_runs_as_without_a_rehearsal(tmp_path: Path) -> None:
    status, rehearsal, text = rehearse(tmp_path, SMALL, "--reserve=254MiB")
    assert status == 0, text
    assert [rank.unanswered for rank in rehearsal.ranks_rehearsed] == [0, 1]
    rank = rehearsal.ranks_rehearsed[0]
    assert rank.reserved >= rank.allocated >= rank.requested  # peaks that the program has reset still count
    assert 1 << 29 <= rank.requested < (1 << 29) + (1 << 20)
    assert any("aten::nonzero" in name for name in rank.computed)
    assert "without a step" in rank.notes[0]
    notes = [note for note in rank.notes if "that process is not rehearsed" in note]
    assert [note.partition(" at ")[2].partition(":")[0] for note in notes] == ["train.py"]
    assert "to spare, but no step was taken" in text


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


FEW_ADDRESSES = """
import resource, torch
resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))
torch.ones(1, device="npu")
"""


@pytest.mark.parametrize(
    ("source", "status", "message", "failure"),
    [
        (
            TRAIN.replace("512, 1024", "200000, 1024"), 3, "NPU out of memory",
            {"phase": "forward", "module": "0", "source": "train.py:9", "asked": 200000 * 1024 * 4},
        ),
        ("import torch\nraise ValueError('no data')\n", 1, "ValueError: no data", {"source": "train.py:2"}),
        pytest.param(LOOP, 3, "NPU out of memory", {"phase": "step", "source": "train.py:11"}, marks=pytest.mark.slow),
        pytest.param(FEW_ADDRESSES, 1, "ulimit -v", {}, marks=pytest.mark.slow),
    ],
    ids=["forward", "program", "optimizer", "addresses"],
)  # fmt: skip
def test_failure_is_named(tmp_path: Path, source: str, status: int, message: str, failure: dict) -> None:
    found, rehearsal, text = rehearse(tmp_path, source)
    (rank,) = rehearsal.ranks_rehearsed
    assert (found, rank.outcome) == (status, {1: "failed", 3: "out of memory"}[status])
    assert message in rank.failure.message
    assert status == 3 or message in text
    assert vars(rank.failure) | failure == vars(rank.failure)


@pytest.mark.parametrize("ended_by", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ctrl_c_gives_the_report_so_far(tmp_path: Path, ended_by: signal.Signals) -> None:
    started = tmp_path / "started"
    program, record = tmp_path / "train.py", tmp_path / "record.json"
    program.write_text(
        f"import pathlib, time, torch\nkept = torch.ones(1 << 20, device='npu')\n"
        f"pathlib.Path({str(started)!r}).touch()\nwhile True: time.sleep(0.05)\n"
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


@pytest.mark.slow
def test_a_step_has_its_collectives_also_if_it_is_the_only_one(tmp_path: Path) -> None:
    source = TRAIN.replace("    loss =", "    import deepspeed.runtime.zero.muon.original_muon\n    loss =")
    _, rehearsal, _ = rehearse(tmp_path, source, "--rank=first", "--steps=1")
    (rank,) = rehearsal.ranks_rehearsed
    assert [call.calls for call in rank.collectives if call.operation == "all_reduce"] == [4]
    assert not any("torch.compile" in note for note in rank.notes)


@pytest.mark.slow
@pytest.mark.parametrize("closure", [True, False])
def test_a_program_without_modules_ends_after_its_steps(tmp_path: Path, closure: bool) -> None:
    source = LOOP.replace("70 <<", "1 <<")
    source = source if closure else source.replace("optimizer.step(loss)", "loss()\n    optimizer.step()")
    status, rehearsal, text = rehearse(tmp_path, source, "--rank=first", "--steps=2", "--output")
    (rank,) = rehearsal.ranks_rehearsed
    assert (status, text.count("loss\n")) == (0, 2 if closure else 3)
    assert {"backward", "step"} <= {phase.name for phase in rank.phases}


@pytest.mark.slow
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
