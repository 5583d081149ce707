# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a (simulated) device's tensors and of DeepSpeed's engine: what is saved is loaded."""

import json
from pathlib import Path

import pytest

from shared.children import on_device

#: Arguments: the device's type, and the folder. torch's own reader reads what ours wrote, and the reverse.
_PROGRAM = """
import sys, warnings, torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from accel_ops.io.checkpoint import CheckpointReader, CheckpointWriter
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


#: Arguments: folder, ZeRO stages, options of the writer. The second save of a tag has less to write than the first.
_FAST_WRITER = """
import json, os, sys, torch, deepspeed
folder, stages, options = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])

def made(stage):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 200), torch.nn.Linear(200, 8))
    config = {
        "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": {"stage": stage},
        "checkpoint": {"writer": {"type": "FAST", "io_buffer_size": 1 << 20, **options}},
    }
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]

def losses(engine):
    torch.manual_seed(1)
    for _ in range(2):
        loss = engine(torch.randn(2, 64).to(engine.device, torch.bfloat16)).float().square().mean()
        engine.backward(loss)
        engine.step()
        yield loss.item()

for stage in stages:
    engine, place = made(stage), f"{folder}/{stage}"
    list(losses(engine))
    for padding in (300_000, 0):
        engine.save_checkpoint(place, tag="here", client_state={"padding": torch.zeros(padding)})
    further = list(losses(engine))
    again = made(stage)
    _, client = again.load_checkpoint(place)
    assert client["padding"].numel() == 0
    assert list(losses(again)) == further, stage
    for one, other in zip(engine.parameters(), again.parameters()):
        assert torch.equal(one, other)
    assert not [name for name in os.listdir(place + "/here") if not name.endswith("states.pt")]
print("done")
"""


@pytest.mark.sample("npu-stages1")
@pytest.mark.parametrize(
    ("key", "stages"),
    [("cpu", [2]), ("npu", [2]), ("cpu", [0, 3]), ("npu", [0, 3])],
)
def test_an_engine_continues_from_what_the_fast_writer_saved(
    tmp_path: Path, key: str, stages: list[int]
) -> None:
    asked = {"DS_ACCELERATOR": "cpu"} if key == "cpu" else {}
    done = on_device(key, "-c", _FAST_WRITER, tmp_path, json.dumps(stages), "{}", **asked)
    assert done.out.splitlines()[-1] == "done"


@pytest.mark.slow
@pytest.mark.parametrize("options", ["{}", '{"data_parallel": "replica"}'])
def test_two_ranks_continue_from_what_the_fast_writer_saved(tmp_path: Path, options: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(_FAST_WRITER, encoding="utf-8")
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
    on_device("cpu", *launch, program, tmp_path, "[2, 3]", options, DS_ACCELERATOR="cpu")


@pytest.mark.parametrize("key", ["npu", "cuda"])
@pytest.mark.sample("npu")
def test_tensors_of_a_device_are_saved_and_loaded(tmp_path: Path, key: str) -> None:
    done = on_device(key, "-c", _PROGRAM, key, tmp_path / "saved", devices=2)
    assert done.out.splitlines()[-1] == "done"
