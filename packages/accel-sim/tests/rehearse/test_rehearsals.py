# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel rehearse` on small programs: verdicts, phases, places, and programs that cannot be rehearsed as they are."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from accel_sim.rehearse.record import Rehearsal

pytestmark = pytest.mark.more

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


def rehearse(folder: Path, source: str, *options: str) -> tuple[int, Rehearsal, str]:
    """Return the exit status, the record and what the command wrote."""
    program, record = folder / "train.py", folder / "record.json"
    program.write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "accel_core.cli", "rehearse", "npu", "--memory=1GiB", "--reserve=0", "--ranks=4",
         f"--json={record}", *options, "--", str(program)],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
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


def test_a_program_finds_its_path_and_the_names_of_its_arguments(tmp_path: Path) -> None:
    source = """
import os, sys, torch
assert os.getcwd() not in sys.path, sys.path
class Model(torch.nn.Module):
    def forward(self, module, stock):
        return module + stock
assert Model()(module=1, stock=2) == 3
"""
    status, _, text = rehearse(tmp_path, source, "--rank=first")
    assert status == 0, text


def test_a_program_may_handle_out_of_memory(tmp_path: Path) -> None:
    source = """
import torch
try:
    torch.empty(2 << 30, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError:
    kept = torch.empty(1 << 29, dtype=torch.uint8, device="npu")
"""
    status, rehearsal, _ = rehearse(tmp_path, source, "--rank=first")
    assert status == 0
    assert rehearsal.ranks_rehearsed[0].requested == 1 << 29


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
        [sys.executable, "-m", "accel_core.cli", "rehearse", "npu", "--memory=1GiB", "--ranks=4", f"--json={record}",
         "--", str(program)],
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


def test_many_rows_of_a_large_host_tensor_are_read(tmp_path: Path) -> None:
    source = """
import numpy, torch
rows = torch.from_numpy(numpy.ones((20_000, 512), dtype="int64"))
assert torch.stack([rows[i] for i in range(64)]).sum() == 64 * 512
torch.ones(1, device="npu")
"""
    status, _, text = rehearse(tmp_path, source, "--rank=first")
    assert status == 0, text
