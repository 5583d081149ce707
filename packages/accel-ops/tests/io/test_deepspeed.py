# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stock DeepSpeed's users of `async_io`: ZeRO-Infinity, tensor swapping, FastFileWriter."""

import re
from pathlib import Path

import pytest

from shared.children import Children

pytestmark = pytest.mark.upstream
_EXAMPLE = Path(__file__).parents[4] / "examples/zero_infinity_nvme/train.py"
_STEP = re.compile(r"step \d+ loss (\S+) .*read +(\d+) MiB, wrote +(\d+) MiB")


def trained(folder: Path, *options: str, engine: str = "") -> tuple[list[str], bool]:
    """The losses of the example, and if each step read from the disk and wrote to it."""
    folder.mkdir()
    arguments = [str(_EXAMPLE), "--folder", str(folder), "--layers", "4", "--limit", "4000", *options]
    program = f"import runpy, sys; sys.argv = {arguments!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    ended = Children(folder, _EXAMPLE.parent).run(program, DS_ACCELERATOR="cpu", ACCEL_IO_ENGINE=engine)
    steps = _STEP.findall(ended.out)
    return [loss for loss, _, _ in steps], all(int(read) and int(wrote) for _, read, wrote in steps)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["threads", "uring"])
def test_training_from_disk_has_the_losses_of_training_in_memory(tmp_path, engine):
    in_memory, _ = trained(tmp_path / "memory", "--in-memory")
    assert len(in_memory) == 4
    assert trained(tmp_path / "disk", engine=engine) == (in_memory, True)


@pytest.mark.parametrize("double_buffer", [True, False])
def test_fast_file_writer_saves_what_torch_loads(tmp_path, double_buffer):
    path = str(tmp_path / "file")
    program = f"""
import torch
from deepspeed.io import FastFileWriter, FastFileWriterConfig
from deepspeed.ops.op_builder import AsyncIOBuilder
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
    ended = Children(tmp_path, _EXAMPLE.parent).run(program, DS_ACCELERATOR="cpu")
    assert ended.out.splitlines()[-1].startswith("accel_ops.")
