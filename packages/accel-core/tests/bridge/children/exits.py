# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""argv: an empty folder, a number of jobs. A job is two forks of this process: ranks at ZeRO 2 on gloo.

They leave their process group to the interpreter. Prints the exit codes that are not 0, as JSON.
"""

import contextlib
import importlib
import json
import os
import sys
from pathlib import Path

import deepspeed
import torch

RANKS = 2
CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
    "zero_optimization": {"stage": 2},
}


def train(rank: int, store: str) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1")
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    model = torch.nn.Linear(8, 8)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    for _ in range(2):
        engine.backward(engine(torch.ones(4, 8)).square().mean())
        engine.step()
    torch.distributed.all_reduce(torch.ones(3))


def start(rank: int, store: str, modules: Path) -> int:
    child = os.fork()
    if child == 0:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        train(rank, store)
        modules.write_text("\n".join(sys.modules))
        sys.exit(0)
    return child


folder, jobs = sys.argv[1], int(sys.argv[2])
codes = []
for job in range(jobs):
    children = [start(rank, f"{folder}/{job}", Path(folder, f"modules{rank}")) for rank in range(RANKS)]
    codes += [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if job == 0:  # the later ones need not import them again
        for name in Path(folder, "modules0").read_text().splitlines():
            with contextlib.suppress(Exception):
                importlib.import_module(name)
print(json.dumps([code for code in codes if code != 0]))
