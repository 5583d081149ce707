# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A parameter without dimensions, such as CLIP's logit_scale, is viewed as bytes, which torch rejects."""

import deepspeed
import torch
from _engine import engine


class Model(torch.nn.Module):
    """A linear layer with a scale."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.scale = torch.nn.Parameter(torch.tensor(1.0))


for name, start in (
    ("initialize", lambda: engine(None, Model(), bf16={"enabled": True})),
    ("zero.Init", lambda: deepspeed.zero.Init(module=Model(), dtype=torch.bfloat16)),
):
    try:
        start()
        print(f"{name}: no error")
    except RuntimeError as error:
        print(f"{name}:", error)
