# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A stage of a pipeline that has received floats receives integers into a buffer of floats."""

from types import SimpleNamespace

import torch
from deepspeed.runtime.pipe.engine import PipelineEngine

stage = SimpleNamespace(
    _grad_layer_buf=[], _allocate_buffer=lambda shape, dtype, num_buffers: [torch.empty(shape, dtype=dtype)]
)
for dtype in (torch.float32, torch.int64):
    buffer = PipelineEngine._allocate_or_extend_buffers(stage, 0, [4], dtype)
    print("sent:", dtype, "- received into:", buffer.dtype)
