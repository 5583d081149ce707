# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of tensors on a (simulated) device: what is saved is loaded, on the device and on the host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accel_testkit import sim

#: Arguments: the device's type, and the folder. torch's own reader reads what ours wrote, and the reverse.
_PROGRAM = """
import sys, warnings, torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from accel_host.io.checkpoint import CheckpointReader, CheckpointWriter
warnings.simplefilter("ignore")
kind, folder = sys.argv[1:]
device = torch.device(kind, 1)

def state(device, number):
    torch.manual_seed(number)
    base = torch.randn(600, 100).to(device)
    return {
        "weight": base,
        "half": base.bfloat16().t(),
        "strided": base[::2, 3:],
        "empty": torch.empty(0, 3, device=device),
        "large": torch.randint(0, 256, (9_000_001,), dtype=torch.uint8).to(device),
        "host": torch.arange(1000.0),
        "step": number,
    }

def check(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(found[name].cpu(), value.cpu()), name
        else:
            assert found[name] == value, name

def loaded(reader, device):
    into = {name: torch.zeros_like(value) if isinstance(value, torch.Tensor) else None
            for name, value in state(device, 0).items()}
    dcp.load(into, storage_reader=reader(folder))
    assert into["large"].device == torch.device(device)
    return into

for number, threads in ((1, 1), (2, 3)):
    dcp.save(state(device, number), storage_writer=CheckpointWriter(folder, thread_count=threads))
    for reader in (CheckpointReader, FileSystemReader):
        check(loaded(reader, device), state("cpu", number))
    check(loaded(CheckpointReader, torch.device("cpu")), state("cpu", number))
dcp.save(state(device, 3), storage_writer=FileSystemWriter(folder))
check(loaded(CheckpointReader, device), state("cpu", 3))

torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
changed = state(device, 4)
future = dcp.async_save(changed, storage_writer=CheckpointWriter(folder))
for value in changed.values():
    if isinstance(value, torch.Tensor):
        value.zero_()
future.result(60)
check(loaded(CheckpointReader, device), state("cpu", 4))
torch.distributed.destroy_process_group()
print("done")
"""


@pytest.mark.parametrize("key", ["npu", "cuda"])
def test_tensors_of_a_device_are_saved_and_loaded(tmp_path: Path, key: str) -> None:
    base = {
        name: value for name, value in os.environ.items() if not name.startswith(("ACCEL_", "DS_", "MASTER_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, key, str(tmp_path / "saved")],
        env=sim.environment(key, devices=2, base=base), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "done"
