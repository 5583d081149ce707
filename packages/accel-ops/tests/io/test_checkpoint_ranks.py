# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of several ranks, divided tensors, loading with another number of ranks, and killed writers."""

from pathlib import Path

import pytest
import torch

from shared.children import ranks

from .conftest import Run, storm

if not torch.distributed.is_available():
    pytest.skip("not run: torch without distributed", allow_module_level=True)

#: A model of FSDP2 and its optimizer, whose values follow from the step alone.
_START = """
import os, random, signal, sys, time, warnings, torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import init_device_mesh
from accel_core.vendor import torch_threads
from accel_ops.io.checkpoint import CheckpointReader, CheckpointWriter
torch_threads.finish_at_exit()  # a rank that only loads is not one of a writer
warnings.simplefilter("ignore")
rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", rank=rank, world_size=world, store=dist.FileStore(sys.argv[4], world))
mesh = init_device_mesh("cpu", (world,))

def trained(steps):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(300, 301), torch.nn.Linear(301, 3))
    for part in (*model, model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(steps):
        model(torch.full((2, 300), step + 1.0)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer

def state(model, optimizer):
    model, optimizer = get_state_dict(model, optimizer)
    return {"model": model, "optimizer": optimizer}

def full(tree):
    if isinstance(tree, dict):
        return {name: full(each) for name, each in tree.items()}
    return tree.full_tensor() if hasattr(tree, "full_tensor") else tree

def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
"""
_SAVE = """
for steps in (1, 2):
    saved = state(*trained(steps))
    if steps == 1:
        dcp.save(saved, storage_writer=CheckpointWriter(f"{folder}/saved"))
    else:
        dcp.async_save(saved, storage_writer=CheckpointWriter(f"{folder}/saved")).result()
if rank == 0:
    assert sum(name.endswith(".distcp") for name in os.listdir(f"{folder}/saved")) == world
whole = full(saved)
if rank == 0:
    torch.save(whole, f"{folder}/expected")
"""
_LOAD = """
model, optimizer = trained(1)
into = state(model, optimizer)
dcp.load(into, storage_reader=CheckpointReader(f"{folder}/saved"))
assert same(full(into), torch.load(f"{folder}/expected", weights_only=False))
set_state_dict(model, optimizer, model_state_dict=into["model"], optim_state_dict=into["optimizer"])
model(torch.ones(2, 300)).sum().backward()
optimizer.step()
"""
_FULL = """
import subprocess
from torch.distributed.tensor import Shard, distribute_tensor
from accel_ops.errors import TransferFailed
saved = {"a": distribute_tensor(torch.ones(world * 1000), mesh, [Shard(0)])}
dcp.save(saved, storage_writer=CheckpointWriter(f"{folder}/saved"))
before = sorted(os.listdir(f"{folder}/saved"))
if rank == 1:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
try:
    large = {"a": distribute_tensor(torch.zeros(world << 20), mesh, [Shard(0)])}
    dcp.save(large, storage_writer=CheckpointWriter(f"{folder}/saved"))
except dcp.api.CheckpointException as error:
    assert list(error.failures) == [1], error
    assert isinstance(error.failures[1][0], TransferFailed) and error.failures[1][0].errno == 27, error
else:
    raise AssertionError("no error")
into = {"a": distribute_tensor(torch.zeros(world * 1000), mesh, [Shard(0)])}
dcp.load(into, storage_reader=CheckpointReader(f"{folder}/saved"))
assert into["a"].full_tensor().eq(1).all()
dist.barrier()
small = {"a": distribute_tensor(torch.zeros(world), mesh, [Shard(0)])}
dcp.save(small, storage_writer=CheckpointWriter(f"{folder}/saved"))
assert len(os.listdir(f"{folder}/saved")) == 1 + world, os.listdir(f"{folder}/saved")
"""


@pytest.mark.slow
def test_two_ranks_save_what_two_and_one_load(tmp_path: Path) -> None:
    ranks(_START + _SAVE, 2, tmp_path)
    ranks(_START + _LOAD, 1, tmp_path)
    ranks(_START + _SAVE + _LOAD.replace("trained(1)", "trained(3)"), 2, tmp_path)


@pytest.mark.slow
def test_an_error_of_one_rank_leaves_the_former_checkpoint(tmp_path: Path) -> None:
    ranks(_START + _FULL, 2, tmp_path)


_SAVER = """
import warnings
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemReader
from accel_ops.io.checkpoint import CheckpointReader, CheckpointWriter
warnings.simplefilter("ignore")
torch.set_num_threads(1)

def state(number):
    return {str(name): torch.full((400_000 + 7 * name,), number) for name in range(3)} | {"step": number}

def save(number):
    dcp.save(state(number), storage_writer=CheckpointWriter(folder))

def found(kill):
    loaded = {name: torch.zeros_like(value) if name != "step" else 0 for name, value in state(0).items()}
    dcp.load(loaded, storage_reader=(CheckpointReader, FileSystemReader)[kill % 2](folder))
    assert all(loaded[name].eq(loaded["step"]).all() for name in "012"), loaded["step"]
    return loaded["step"]
"""


@pytest.mark.parametrize(
    ("kills", "least"), [(20, (0, 0)), pytest.param(200, (11, 21), marks=pytest.mark.slow)]
)
def test_killed_writers_leave_the_former_checkpoint_or_the_new_one(
    run_program: Run, tmp_path: Path, kills: int, least: tuple[int, int]
) -> None:
    assert all(map(int.__ge__, storm(run_program, _SAVER, 0.3, tmp_path, kills), least))
