# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""PipelineModule(seed_layers=True) seeds Python's random with a number of numpy, which Python >= 3.11 refuses."""

import _engine  # noqa: F401 - makes this process the only rank
import deepspeed
import torch
from deepspeed.pipe import PipelineModule

deepspeed.init_distributed()
try:
    PipelineModule([torch.nn.Linear(2, 2) for _ in range(2)], num_stages=1, seed_layers=True)
    print("no error")
except TypeError as error:
    print("TypeError:", str(error).partition(":")[0])
