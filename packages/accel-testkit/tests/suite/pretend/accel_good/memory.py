# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory counters of the pretended devices: they follow the tensors that are made on `cpu:0` and `cpu:1`."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

#: What a tensor's memory is a multiple of, in bytes.
_BLOCK = 512


@dataclass
class Counters:
    """Bytes on one device; what is freed stays reserved until the cache is emptied."""

    allocated: int = 0
    peak: int = 0
    reserved: int = 0
    reserved_peak: int = 0
    made: int = 0
    tensors: int = 0

    def add(self, nbytes: int) -> None:
        self.allocated += nbytes
        self.made += nbytes
        self.tensors += 1
        self.reserved = max(self.reserved, self.allocated)
        self.peak = max(self.peak, self.allocated)
        self.reserved_peak = max(self.reserved_peak, self.reserved)

    def remove(self, nbytes: int) -> None:
        self.allocated -= nbytes
        self.tensors -= 1

    def empty_cache(self) -> None:
        self.reserved = self.allocated

    def reset_peak(self) -> None:
        self.peak, self.reserved_peak = self.allocated, self.reserved


class Meter(TorchDispatchMode):
    """While it is active, tensors made on an indexed device are counted there."""

    counters = (Counters(), Counters())

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        device = (kwargs or {}).get("device")
        if isinstance(result, torch.Tensor) and device is not None and device.index is not None:
            counters = self.counters[device.index]
            blocks = -(-result.nbytes // _BLOCK) * _BLOCK
            counters.add(blocks)
            weakref.finalize(result, counters.remove, blocks)
        return result
