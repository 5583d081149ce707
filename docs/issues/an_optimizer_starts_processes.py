# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`DeepSpeedCPUAdam` and `DeepSpeedCPULion` start a process at each construction."""

import subprocess
import types

import torch
from deepspeed.ops.adam import cpu_adam

started = []
popen = subprocess.Popen


class Counted(popen):
    def __init__(self, *arguments, **options):
        started.append(arguments)
        super().__init__(*arguments, **options)


subprocess.Popen = Counted
op = types.SimpleNamespace(create_adam=lambda *_: None, destroy_adam=lambda *_: None)
cpu_adam.CPUAdamBuilder.load = lambda *_: op
for _ in range(2):
    cpu_adam.DeepSpeedCPUAdam([torch.nn.Parameter(torch.zeros(1))])
print("processes for two optimizers:", "none" if not started else "some")
