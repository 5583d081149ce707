# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stock DeepSpeed's users of `async_io`: ZeRO-Infinity, tensor swapping, FastFileWriter."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream
_PROGRAMS = Path(__file__).parent / "programs"
_OPTIMIZER = {"device": "nvme", "pin_memory": True, "buffer_count": 5}
_PARAM = {"device": "nvme", "buffer_count": 8, "buffer_size": 600_000, "pin_memory": True}
_PIPELINED = {**_OPTIMIZER, "buffer_count": 10, "pipeline_read": True, "pipeline_write": True}
#: What is on disk, and which engine reads and writes it.
_CASES: dict[str, tuple[dict[str, Any], str]] = {
    "optimizer": ({"offload_optimizer": _OPTIMIZER}, "threads"),
    "parameters and optimizer, pipelined": (
        {"offload_param": _PARAM, "offload_optimizer": _PIPELINED},
        "uring",
    ),
}


def train(folder: Path, zero: dict[str, Any], engine: str = "") -> dict[str, Any]:
    """What the program reports."""
    folder.mkdir()
    single = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_SIZE"), "1") | {
        "RANK": "0",
        "LOCAL_RANK": "0",
    }
    given = {
        **os.environ,
        **single,
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
        "ACCEL_IO_ENGINE": engine,
    }
    command = [sys.executable, str(_PROGRAMS / "zero_infinity.py"), str(folder), json.dumps(zero)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, env=given)
    assert ended.returncode == 0, ended.stderr[-3000:]
    report: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return report


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses without offloading."""
    pytest.importorskip("accel_cpu")
    losses: list[float] = train(tmp_path_factory.mktemp("none") / "run", {})["losses"]
    return losses


@pytest.mark.parametrize("name", _CASES)
def test_training_from_disk_has_the_losses_of_training_in_memory(
    in_memory: list[float], tmp_path: Path, name: str
) -> None:
    zero, engine = _CASES[name]
    report = train(tmp_path / "run", zero, engine)
    assert report["losses"] == in_memory
    assert report["handle"].startswith("accel_ops.")
    assert report["files"] > 0


@pytest.mark.parametrize("double_buffer", [True, False])
def test_fast_file_writer_saves_what_torch_loads(tmp_path: Path, double_buffer: bool) -> None:
    program = f"""
import sys, torch
from deepspeed.accelerator import get_accelerator
from deepspeed.io import FastFileWriter, FastFileWriterConfig
from deepspeed.ops.op_builder import AsyncIOBuilder
torch.manual_seed(0)
state = {{"a": torch.randn(300, 1000), "b": [torch.arange(7), "text"], "c": torch.randn(12345).bfloat16()}}
handle = AsyncIOBuilder().load().aio_handle(block_size=65536, queue_depth=8)
pinned = handle.new_cpu_locked_tensor(1 << 18, torch.empty(0, dtype=torch.uint8))
writer = FastFileWriter(sys.argv[1], FastFileWriterConfig(handle, pinned, double_buffer={double_buffer}))
torch.save(state, writer, _use_new_zipfile_serialization=True)
writer.close()
storages = FastFileWriter(sys.argv[1] + ".storages", FastFileWriterConfig(handle, pinned))
list_of = [(state["a"].untyped_storage(), torch.float32), (state["c"].untyped_storage(), torch.bfloat16)]
assert storages.save_torch_storage_object_list(list_of, True) == state["a"].nbytes + state["c"].nbytes + 16
storages.close()
loaded = torch.load(sys.argv[1])
assert torch.equal(loaded["a"], state["a"]) and torch.equal(loaded["c"], state["c"])
assert loaded["b"][1] == "text" and torch.equal(loaded["b"][0], torch.arange(7))
raw = open(sys.argv[1] + ".storages", "rb").read()
assert raw[8 : 8 + state["a"].nbytes] == state["a"].numpy().tobytes()
print(type(handle).__module__)
"""
    given = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, str(tmp_path / "file")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=given)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.splitlines()[-1].startswith("accel_ops.")
