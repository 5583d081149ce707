# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A rank: it takes the device of its local rank, and says in $HELD which one of the machine that is."""

import os
from pathlib import Path

import torch

import accel_sim
from accel_core import get_accelerator

accelerator = get_accelerator()
local = int(os.environ.get("LOCAL_RANK", "0"))
accelerator.set_device(local)
held = -1
if accelerator.device_name() != "cpu":
    torch.ones(1, device=accelerator.current_device_name())
    simulation = accel_sim.current()
    # Habana's plug-in chooses the module of a rank, which then has one device.
    index = local if simulation.vendor.one_device else accelerator.current_device()
    held = simulation.physical[index] if index < len(simulation.physical) else -1
Path(os.environ["HELD"], os.environ.get("RANK", "0")).write_text(str(held))
