# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""FastCheckpointEngine: KeyError under torchrun, and no `dp_rank` without `data_parallel`."""

import os
import types

for name in ("CROSS_RANK", "CROSS_SIZE"):
    os.environ.pop(name, None)
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")

import deepspeed
from deepspeed.runtime.model_checkpointing.utils import create_universal_parallel_info

deepspeed.init_distributed("gloo")
groups = types.SimpleNamespace(mpu=None)
try:
    create_universal_parallel_info(groups, has_moe_layers=False)
except KeyError as error:
    print("under torchrun: KeyError", error)
os.environ.update(CROSS_RANK="0", CROSS_SIZE="1")
print("dp_rank:", hasattr(create_universal_parallel_info(groups, has_moe_layers=False), "dp_rank"))
