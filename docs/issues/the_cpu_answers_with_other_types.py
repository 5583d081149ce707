# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""CPU_Accelerator answers with None and with text where the interface has bool, torch.device and int."""

import os

os.environ["LOCAL_RANK"] = "0"

from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

cpu = CPU_Accelerator()
print("device():", cpu.device())
print("current_device():", repr(cpu.current_device()))
try:
    cpu.set_rng_state(cpu.get_rng_state(), 0)
except TypeError as error:
    print("set_rng_state(state, 0):", error)
