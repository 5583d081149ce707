# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Windows of text as tensors, in an order that the seed and the step number alone decide."""

from __future__ import annotations

import torch
from torch import Tensor


class TrainingWindows:
    """Every window of the text once an epoch, shuffled; no state, so a step number is a position in the data."""

    def __init__(self, text: bytes, context: int, seed: int) -> None:
        self.text, self.context, self.seed = as_tensor(text), context, seed
        self.count = (len(text) - 1) // context
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def batch(self, first: int, size: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets, each (size, context) of int64: windows number `first` and on since the start."""
        return stack([self._window(number) for number in range(first, first + size)])

    def _window(self, number: int) -> Tensor:
        epoch, place = divmod(number, self.count)
        if self._order[0] != epoch:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            self._order = epoch, torch.randperm(self.count, generator=generator)
        start = int(self._order[1][place]) * self.context
        return self.text[start : start + self.context + 1]


def validation_windows(text: bytes, context: int, most: int, ranks: int) -> list[Tensor]:
    """At most `most` windows of context + 1 bytes, evenly spread over the text, as many for each rank."""
    tensor, count = as_tensor(text), (len(text) - 1) // context
    used = min(count, most) // ranks * ranks
    starts = [i * count // used * context for i in range(used)]
    return [tensor[start : start + context + 1] for start in starts]


def stack(windows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Inputs and targets of the windows: targets are the inputs one byte later."""
    batch = torch.stack(windows).long()
    return batch[:, :-1], batch[:, 1:]


def as_tensor(text: bytes) -> Tensor:
    """The bytes as one uint8 tensor that owns its memory."""
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)
