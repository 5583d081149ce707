# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ZeRO-Infinity: `load_checkpoint` with parameters, and with optimizer states, in files."""

import tempfile
import types

import torch
from _engine import engine
from deepspeed.ops.op_builder import AsyncIOBuilder

locked = []  # memory of every handle


class Files:
    """Stands for the handle of the op, which needs libaio and a compiler."""

    def __init__(self, **_):
        self.done = 0

    def async_pwrite(self, buffer, path, offset):
        buffer.detach().view(torch.uint8).numpy().tofile(path)
        self.done += 1
        return 0

    def async_pread(self, buffer, path, offset):
        buffer.detach().copy_(torch.from_file(path, size=buffer.numel(), dtype=buffer.dtype))
        self.done += 1
        return 0

    def wait(self):
        done, self.done = self.done, 0
        return done

    def is_pinned(self, buffer):
        starts = [(each.data_ptr(), each.nbytes) for each in locked]
        return any(start <= buffer.data_ptr() < start + size for start, size in starts)

    def new_cpu_locked_tensor(self, size, like):
        locked.append(torch.empty(size, dtype=like.dtype))
        return locked[-1]


AsyncIOBuilder.load = lambda *_, **__: types.SimpleNamespace(aio_handle=Files)
WIDTH = 768  # a weight is larger than the 1 MiB from which on DeepSpeed swaps


def on_nvme(folder, **offload):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH))
    nvme = {"device": "nvme", "nvme_path": folder, "buffer_count": 8, "pin_memory": True}
    zero = {"stage": 3, "sub_group_size": WIDTH * 800, "stage3_param_persistence_threshold": 0}
    zero |= {name: nvme | options for name, options in offload.items()}
    config = {"bf16": {"enabled": True}, "zero_optimization": zero, "zero_force_ds_cpu_optimizer": False}
    return engine(lambda parameters: torch.optim.AdamW(parameters, lr=1e-3), model, **config)


def two_steps(trained):
    losses = []
    for _ in range(2):
        loss = trained(torch.ones(1, WIDTH, dtype=torch.bfloat16)).float().square().mean()
        trained.backward(loss)
        trained.step()
        losses.append(loss.item())
    return losses


with tempfile.TemporaryDirectory() as folder:
    trained = on_nvme(folder, offload_optimizer={})
    two_steps(trained)
    trained.save_checkpoint(f"{folder}/saved")
    before = two_steps(trained)
    trained.load_checkpoint(f"{folder}/saved")
    print("optimizer on nvme, the same losses after the load:", two_steps(trained) == before)

with tempfile.TemporaryDirectory() as folder:
    trained = on_nvme(
        folder, offload_param={"buffer_size": 600_000, "max_in_cpu": 0}, offload_optimizer={"device": "cpu"}
    )
    two_steps(trained)
    trained.save_checkpoint(f"{folder}/saved")
    try:
        trained.load_checkpoint(f"{folder}/saved")
    except AttributeError as error:
        print("parameters on nvme:", error)
