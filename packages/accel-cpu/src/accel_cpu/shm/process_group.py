# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The backend `shm` of torch.distributed: shared memory for what it has, gloo for all else.

Collectives run in the order of their calls: on the caller's thread, or on a thread of the group if asynchronous.

Before a collective of all ranks is handed to gloo, the ranks compare what they are about to do. Otherwise a rank in
gloo and one in shared memory would wait for each other without end.
"""

# torch's stubs have several overloads and names for each method; torch calls these with these arguments.
# mypy: disable-error-code="override, explicit-override"
# ruff: noqa: B008 - nobody changes the default options

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore  # not exported by torch.distributed

from accel_cpu.errors import CollectiveFailed
from accel_cpu.process_group import Handle, HostProcessGroup, Tensors, by_value, call_gloo, concatenated
from accel_cpu.shm import library, rendezvous
from accel_cpu.shm.hosts import Hosts
from accel_cpu.shm.library import REDUCIBLE
from accel_cpu.shm.memory import OPERATIONS, SharedMemory

_log = logging.getLogger("accel_cpu")


class ShmProcessGroup(HostProcessGroup):
    """A process group whose ranks share memory, if they can."""

    operations = by_value({name: number for number, name in enumerate(OPERATIONS)})
    reducible = frozenset(REDUCIBLE)

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(store, rank, size, timeout)
        self._process, self._thread = os.getpid(), ThreadPoolExecutor(1, thread_name_prefix="accel-shm")
        #: Whether the ranks share memory, or why not.
        handle, self.reason = None, "there is one rank"
        if size > 1 or (dist.is_initialized() and dist.get_world_size() > 1):
            among = PrefixStore("shm", store)
            milliseconds = int(timeout.total_seconds() * 1000)
            handle, self.reason, hosts = rendezvous.join(among, rank, size, milliseconds)
        if handle is not None:
            if len(hosts) > 1:
                self._library = Hosts(handle, rank, hosts, among, timeout, self._gloo)
            else:
                self._library = SharedMemory(handle, rank, hosts[0], timeout)
        if rank == 0 and not dist.is_initialized():  # the group of all ranks
            level = logging.INFO if handle is not None or size == 1 else logging.WARNING
            means = "by gloo" if handle is None else "in memory"
            _log.log(level, "collectives of the CPU ranks are done %s: %s", means, self.reason)

    def getBackendName(self) -> str:
        return "shm"

    def allreduce(self, tensors: Tensors, opts: Any = dist.AllreduceOptions()) -> Any:
        if not getattr(opts, "asyncOp", False) and len(tensors) == 1:
            number = self.operations.get(opts.reduceOp.op.value)
            if number is not None and self.reduced_at_once(tensors[0], number):
                return Handle(tensors)
        return super().allreduce(tensors, opts)

    def reduced_at_once(self, tensor: Tensor, operation: int) -> bool:
        """Reduce as `SharedMemory.reduced_at_once` does."""
        return self._library is not None and self._library.reduced_at_once(tensor, operation)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = dist.AllToAllOptions()) -> Any:
        alike = len({tensor.dtype for tensor in (*outputs, *inputs)}) == 1
        complete = len(outputs) == len(inputs) == self.size()
        taken = complete and alike and self._takes(*outputs, *inputs)
        if not taken:
            return self._by_gloo("alltoall", inputs, opts, outputs, inputs, opts)

        def call() -> None:
            received = torch.empty(sum(part.numel() for part in outputs), dtype=outputs[0].dtype)
            sends, receives = ([part.nbytes for part in parts] for parts in (inputs, outputs))
            self._library.all_to_all(received, concatenated(inputs), sends, receives)
            parts = received.split([part.numel() for part in outputs])
            for output, part in zip(outputs, parts, strict=True):
                output.detach().copy_(part.view(output.shape))

        return self._run(call, outputs, opts)

    def shutdown(self) -> None:
        """Wait for all that was called, and leave the group.

        In a signal handler that has interrupted a call, end that call, and leave after it.
        """
        group = self._library.group if self._library is not None else None
        if os.getpid() != self._process or group is None:
            return
        self._thread.shutdown()
        # A later call raises what the closed group does, not that its executor is shut down.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="accel-shm")
        begun = group.begin()
        if not begun:
            self._library.break_off()
        self._library.close()
        if begun:
            group.finish()

    def abort(self) -> None:
        if self._library is not None:
            self._library.break_off()
        super().abort()
        self.shutdown()

    def _end(self) -> None:
        if self._library is not None:
            self._library.break_off(library.MISMATCH)

    def _run(self, call: Callable[[], None], results: Tensors, opts: Any) -> Any:
        """Run the call after all earlier ones, whatever thread they come from, and return its handle.

        Raises `CollectiveFailed` in a forked child, and within another call.
        """
        if os.getpid() != self._process:
            raise CollectiveFailed(
                "this process group cannot be used here: a process that was forked after the group was made",
                do="start processes with torch.multiprocessing's spawn",
            )
        asynchronous, pending = getattr(opts, "asyncOp", False), self._library.pending
        if not asynchronous and (pending is None or pending.done()):
            self._in_turn(call)
            return Handle(results)
        self._library.pending = self._thread.submit(self._in_turn, call)
        handle = Handle(results, self._library.pending)
        if not asynchronous:
            handle.wait()
        return handle

    def _in_turn(self, call: Callable[[], None]) -> None:
        group = self._library.group
        if group is None:
            return call()
        if not group.begin():
            raise CollectiveFailed(
                "a collective cannot begin within another one of its process group: a signal handler, or a "
                "finalizer, that ran while this rank was waiting for another",
                do="set a flag in the handler, and look at it between collectives",
            )
        try:
            call()
        finally:
            group.finish()

    def _by_gloo(self, name: str, tensors: Sequence[Tensor], opts: Any, *arguments: Any) -> Any:
        if self._library is None:
            return call_gloo(self._gloo, name, *arguments)

        def call() -> None:
            what = f"{name} {opts.reduceOp.op}" if hasattr(opts, "reduceOp") else name
            # What ranks send to each other may differ in size.
            compared = tensors[0] if tensors and not name.startswith("alltoall") else None
            # The lists of a root, which gloo would find only there, when the others are waiting for it.
            lists = [each for argument in arguments if isinstance(argument, list) for each in argument]
            if not all(self._are_even(parts, tensors[0]) for parts in lists if isinstance(parts, list)):
                what = f"{what} of parts that differ from the tensor"
            self._library.compare(what, compared, getattr(opts, "rootRank", 0))
            call_gloo(self._gloo, name, *arguments).wait()

        return self._run(call, list(tensors), opts)

    def _exchanges(self, sends: list[int] | None, receives: list[int] | None) -> bool:
        return sends is not None and receives is not None
