# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The comms logger adds each time of an operation to those before, and ends the process at some operations."""

import os
import time

import torch
from deepspeed import comm

os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
comm.init_distributed("gloo")
comm.configure(enabled=True, prof_all=True)
start = time.time()
for _ in range(40):
    comm.all_reduce(torch.ones(1))
passed = 1000 * (time.time() - start)
((count, times, *_),) = comm.comm.comms_logger.comms_dict["all_reduce"].values()
print(
    f"{count} operations, and together they took longer than the program: {sum(times) > passed}", flush=True
)
comm.all_gather_object([None], 1)
comm.monitored_barrier()
print("the program goes on")
