# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`deepspeed.comm.torch` prints which library it loaded, whichever rank it is."""

import importlib
import os
import types

import deepspeed

backend = importlib.import_module("deepspeed.comm.torch")

builder = types.SimpleNamespace(
    NAME="deepspeed_shm_comm_op",
    load=lambda: None,
    absolute_name=lambda: "deepspeed.ops.comm.deepspeed_shm_comm_op",
)
backend.get_accelerator = lambda: types.SimpleNamespace(create_op_builder=lambda _: builder)
deepspeed.ops.__compatible_ops__[builder.NAME] = True
for rank in ("0", "1"):
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE="2")
    backend.build_shm_op()
