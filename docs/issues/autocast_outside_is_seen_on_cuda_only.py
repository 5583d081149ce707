# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The engine turns autocast of the program off on CUDA, and leaves that of any other device on."""

import torch
from _engine import engine

trained = engine(torch.optim.SGD)
with torch.autocast("cpu", dtype=torch.bfloat16):
    print("output of a float32 model:", trained(torch.ones(1, 1)).dtype)
