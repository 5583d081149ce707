# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`init_distributed` without a launcher ends in "No module named 'mpi4py'"."""

import os
import sys


class WithoutMPI:
    """A machine on which mpi4py is not installed."""

    @staticmethod
    def find_spec(name, *_):
        if name == "mpi4py":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, WithoutMPI)
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
    os.environ.pop(name, None)

import deepspeed

try:
    deepspeed.init_distributed("gloo")
except ModuleNotFoundError as error:
    print("init_distributed:", error)
