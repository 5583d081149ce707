# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The job of one rank: time all_reduce at several sizes."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from accel_testkit.suite import launch
from accel_testkit.verify.speed import SIZES


def work(accelerator: Any, answer: dict[str, Any], folder: Path) -> None:
    """Put the median seconds of each size into the answer."""
    rounds = launch.order(folder)["rounds"]
    device = torch.device(accelerator.current_device_name())
    answer["backend"], answer["seconds"] = dist.get_backend(), {}
    for size in SIZES:
        tensor = torch.zeros(size // 4, device=device)
        times = []
        for _ in range(rounds + 1):
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(tensor)
            accelerator.synchronize()
            times.append(time.perf_counter() - began)
        answer["seconds"][str(size)] = statistics.median(times[1:])
