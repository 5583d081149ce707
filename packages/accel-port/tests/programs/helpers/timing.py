# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import time

import torch


class Timer:
    """Measures a block; waits for the GPU first."""

    def __init__(self, device):
        self.device = device
        self.elapsed = 0.0

    def _now(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def __enter__(self):
        self.start = self._now()
        return self

    def __exit__(self, *exc):
        self.elapsed += self._now() - self.start
