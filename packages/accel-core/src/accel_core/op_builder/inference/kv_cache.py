# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Key-value cache of one layer."""

from __future__ import annotations

import torch


class KVCache:
    """Keys and values of past tokens. The capacity doubles when needed; `append` returns views."""

    def __init__(self) -> None:
        self.length = 0
        self._rows: torch.Tensor | None = None

    def clear(self) -> None:
        """Remove all tokens; the memory is kept for the next prompt."""
        self.length = 0

    def positions(self, new: torch.Tensor) -> torch.Tensor:
        """Return the positions of new tokens, (batch, tokens, …), in their sequence, on their device."""
        return torch.arange(self.length, self.length + new.shape[1], device=new.device)

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values, (batch, tokens, heads, width); returns all of them in the same layout."""
        end = self.length + keys.shape[1]
        rows = self._with_room(keys, end)
        rows[0, :, self.length : end] = keys
        rows[1, :, self.length : end] = values
        self.length = end
        return rows[0, :, :end], rows[1, :, :end]

    def repeat(self, batch: int, times: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Repeat each of the first `batch` sequences `times` times; returns all keys and values."""
        if self._rows is None or not self.length:
            raise RuntimeError("a key-value cache can be repeated after a prompt only; found an empty one")
        self._rows = self._rows[:, :batch].repeat_interleave(times, dim=1)
        return self._rows[0, :, : self.length], self._rows[1, :, : self.length]

    def _with_room(self, new: torch.Tensor, end: int) -> torch.Tensor:
        old = self._rows
        if old is not None and old.dtype == new.dtype and old[0, :, 0].shape == new[:, 0].shape:
            if old.shape[2] >= end:
                return old
            capacity = 2 * end
        else:
            old, capacity = None, end
        self._rows = new.new_empty((2, new.shape[0], capacity, *new.shape[2:]))
        if old is not None:
            self._rows[:, :, : self.length] = old[:, :, : self.length]
        return self._rows
