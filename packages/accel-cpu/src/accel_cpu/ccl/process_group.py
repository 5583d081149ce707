# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The backend `ccl` of torch.distributed: oneCCL for what its C interface has, gloo for all else.

A collective is done when its call returns, also with `async_op=True`: DeepSpeed's class for this backend drops the
handles of asynchronous calls.
"""

# torch's stubs have several overloads and names for each method.
# mypy: disable-error-code="override, explicit-override"

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import PrefixStore  # not exported by torch.distributed

from accel_cpu.ccl.communicator import DTYPES, OPERATIONS, Communicator
from accel_cpu.process_group import HostProcessGroup, by_value


class CclProcessGroup(HostProcessGroup):
    """A process group on oneCCL. Raises `OneCCLFailed` on all ranks if one of them has no oneCCL.

    oneCCL has no time limit.
    """

    operations = by_value({name: name for name in OPERATIONS})
    reducible = frozenset(DTYPES)

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(store, rank, size, timeout)
        self._library = Communicator(PrefixStore("ccl", store), rank, size)

    def getBackendName(self) -> str:
        return "ccl"

    def shutdown(self) -> None:
        self._library.close()

    def _exchanges(self, sends: list[int] | None, receives: list[int] | None) -> bool:
        """Agree with the other ranks: the parts may be equal on one rank and not on another."""
        even = sends is not None and sends == receives and len(set(sends)) == 1
        uneven = torch.tensor([int(not even)], dtype=torch.int32)
        self._library.all_reduce(uneven, "MAX")
        return not uneven.item()
