# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stock DeepSpeed's users of `async_io`: ZeRO-Infinity, tensor swapping, FastFileWriter."""

from pathlib import Path
from typing import Any

import pytest

from shared.children import Children

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
    program = f"import os; os.environ['ACCEL_IO_ENGINE'] = {engine!r}; import zero_infinity as program"
    (report,) = Children(folder, _PROGRAMS).ranks(f"{program}; program.main({str(folder)!r}, {zero!r})", 1)
    return report


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses without offloading."""
    pytest.importorskip("accel_cpu")
    losses: list[float] = train(tmp_path_factory.mktemp("none") / "run", {})["losses"]
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("name", _CASES)
def test_training_from_disk_has_the_losses_of_training_in_memory(in_memory, tmp_path, name):
    zero, engine = _CASES[name]
    report = train(tmp_path / "run", zero, engine)
    assert report["losses"] == in_memory
    assert report["handle"].startswith("accel_ops.")
    assert report["files"] > 0


@pytest.mark.parametrize("double_buffer", [True, False])
def test_fast_file_writer_saves_what_torch_loads(tmp_path, double_buffer):
    path = str(tmp_path / "file")
    program = f"""
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.io import FastFileWriter, FastFileWriterConfig
from deepspeed.ops.op_builder import AsyncIOBuilder
torch.manual_seed(0)
state = {{"a": torch.randn(300, 1000), "b": [torch.arange(7), "text"], "c": torch.randn(12345).bfloat16()}}
handle = AsyncIOBuilder().load().aio_handle(block_size=65536, queue_depth=8)
pinned = handle.new_cpu_locked_tensor(1 << 18, torch.empty(0, dtype=torch.uint8))
writer = FastFileWriter({path!r}, FastFileWriterConfig(handle, pinned, double_buffer={double_buffer}))
torch.save(state, writer, _use_new_zipfile_serialization=True)
writer.close()
storages = FastFileWriter({path + ".storages"!r}, FastFileWriterConfig(handle, pinned))
list_of = [(state["a"].untyped_storage(), torch.float32), (state["c"].untyped_storage(), torch.bfloat16)]
assert storages.save_torch_storage_object_list(list_of, True) == state["a"].nbytes + state["c"].nbytes + 16
storages.close()
loaded = torch.load({path!r})
assert torch.equal(loaded["a"], state["a"]) and torch.equal(loaded["c"], state["c"])
assert loaded["b"][1] == "text" and torch.equal(loaded["b"][0], torch.arange(7))
raw = open({path + ".storages"!r}, "rb").read()
assert raw[8 : 8 + state["a"].nbytes] == state["a"].numpy().tobytes()
print(type(handle).__module__)
"""
    ended = Children(tmp_path, _PROGRAMS).run(program, DS_ACCELERATOR="cpu")
    assert ended.out.splitlines()[-1].startswith("accel_ops.")
