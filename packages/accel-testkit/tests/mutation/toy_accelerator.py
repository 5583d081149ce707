# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A small accelerator with one method that the suite checks well, one that it cannot tell, and one constructor."""

from __future__ import annotations

import torch
from accel_good.accelerator import GOOD_Accelerator


class TOY_Accelerator(GOOD_Accelerator):
    """The suite's good accelerator with seeds of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.traits = dict(self.traits)

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        self.seen = new_state.clone()
        super().set_rng_state(new_state, device_index)
