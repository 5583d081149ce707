# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The backend `shm` of torch.distributed: shared memory for what it has, gloo for all else.

Collectives run in the order of their calls: on the caller's thread, or on a thread of the group if asynchronous.

Before a collective of all ranks is handed to gloo, the ranks compare what they are about to do. Otherwise a rank in
gloo and one in shared memory would wait for each other without end.
"""

# torch's stubs have several overloads and names for each method; torch calls these with these arguments.
# mypy: disable-error-code="override, explicit-override"

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore  # not exported by torch.distributed

from accel_cpu.errors import CollectiveFailed
from accel_cpu.process_group import Finished, HostProcessGroup, by_value, call_gloo, concatenated, size_of
from accel_cpu.shm import library, rendezvous
from accel_cpu.shm.hosts import Hosts
from accel_cpu.shm.library import REDUCIBLE
from accel_cpu.shm.memory import OPERATIONS, SharedMemory

_log = logging.getLogger("accel_cpu")
#: Of accel_shm.Group.begin.
_BEGUN, _OF_ANOTHER_THREAD = 0, 1


class Pending(dist.Work):
    """The handle of a collective on the group's thread. `wait` raises what it has raised."""

    def __init__(self, done: Future[None], results: list[Any]) -> None:
        super().__init__()
        self._done = done
        self._results = results

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        seconds = timeout.total_seconds()
        try:
            self._done.result(seconds if seconds > 0 else None)
        except NotDone:
            if self._done.done():
                raise
            raise RuntimeError(f"the collective was not done within {seconds:g} s") from None
        return True

    def is_completed(self) -> bool:
        return self._done.done()

    def is_success(self) -> bool:
        return self._done.done() and self._done.exception() is None

    def exception(self) -> Any:
        return self._done.exception() if self._done.done() else None

    def result(self) -> list[Any]:
        self.wait()
        return self._results

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()

        def finish(done: Future[None]) -> None:
            if error := done.exception():
                future.set_exception(error)
            else:
                future.set_result(self._results)

        self._done.add_done_callback(finish)
        return future


class Sequencer:
    """Runs callables one after the other, whatever thread they come from."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory, self._process = memory, os.getpid()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="accel-shm")
        self._last: Future[None] | None = None
        self._turn = threading.RLock()

    def run(self, call: Callable[[], None], results: list[Any], *, asynchronous: bool) -> dist.Work:
        """Run `call` after all earlier ones; returns its handle. Synchronous: it is done on return, or raises.

        Raises `CollectiveFailed` in a forked child, and within another call.
        """
        if os.getpid() != self._process:
            raise CollectiveFailed(
                "this process group cannot be used here: a process that was forked after the group was made",
                do="start processes with torch.multiprocessing's spawn",
            )
        if not asynchronous and (self._last is None or self._last.done()):
            self._in_turn(call)
            return Finished(results)
        group = self._memory.group
        if group is not None:
            group.queue(1)  # until it is done, `reduced_at_once` reduces nothing

        def later() -> None:
            try:
                self._in_turn(call)
            finally:
                if group is not None:
                    group.queue(-1)

        self._last = self._thread.submit(later)
        pending = Pending(self._last, results)
        if not asynchronous:
            pending.wait()
        return pending

    def close(self) -> None:
        """Wait for all that was called, and leave the group.

        In a signal handler that has interrupted a call, end that call, and leave after it.
        """
        if os.getpid() != self._process:
            return
        self._thread.shutdown()
        # A later call raises what the closed group does, not that its executor is shut down.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="accel-shm")
        with self._turn:
            group = self._memory.group
            if group is not None:
                if not self._begins(group):
                    self._memory.break_off()
                    self._memory.close()
                else:
                    self._memory.close()
                    group.finish()

    def _in_turn(self, call: Callable[[], None]) -> None:
        with self._turn:
            group = self._memory.group
            if group is None:
                return call()
            if not self._begins(group):
                raise CollectiveFailed(
                    "a collective cannot begin within another one of its process group: a signal handler, or a "
                    "finalizer, that ran while this rank was waiting for another",
                    do="set a flag in the handler, and look at it between collectives",
                )
            try:
                call()
            finally:
                group.finish()

    def _begins(self, group: Any) -> bool:
        """Wait until it is this thread's turn; False if it has been before, in a call that is under way."""
        while (state := group.begin()) == _OF_ANOTHER_THREAD:
            time.sleep(0.001)  # that is in `reduced_at_once`, which takes no lock
        return bool(state == _BEGUN)


class ShmProcessGroup(HostProcessGroup):
    """A process group whose ranks share memory, if they can."""

    operations = by_value({name: number for number, name in enumerate(OPERATIONS)})
    reducible = frozenset(REDUCIBLE)

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(store, rank, size, timeout)
        #: Whether the ranks share memory, or why not.
        handle, self.reason = None, "there is one rank"
        if size > 1 or (dist.is_initialized() and dist.get_world_size() > 1):
            among = PrefixStore("shm", store)
            handle, self.reason, hosts = rendezvous.join(among, rank, size)
        if handle is not None:
            if len(hosts) > 1:
                self._library = Hosts(handle, rank, hosts, among, timeout, self._gloo)
            else:
                self._library = SharedMemory(handle, rank, hosts[0], int(timeout.total_seconds() * 1000))
            self._sequencer = Sequencer(self._library)
        if rank == 0 and not dist.is_initialized():  # the group of all ranks
            level = logging.INFO if handle is not None or size == 1 else logging.WARNING
            means = "by gloo" if handle is None else "in memory"
            _log.log(level, "collectives of the CPU ranks are done %s: %s", means, self.reason)

    def getBackendName(self) -> str:
        return "shm"

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        if opts is not None and not getattr(opts, "asyncOp", False) and len(tensors) == 1:
            number = self.operations.get(opts.reduceOp.op.value)
            if number is not None and self.reduced_at_once(tensors[0], number):
                return Finished(tensors)
        return super().allreduce(tensors, opts)

    def reduced_at_once(self, tensor: Tensor, operation: int) -> bool:
        """Reduce a small plain tensor in place, if no other call is under way; False, with nothing done, for others.

        operation: as `operations` has them.
        """
        return self._library is not None and self._library.reduced_at_once(tensor, operation)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        opts = opts or dist.AllToAllOptions()
        alike = len({tensor.dtype for tensor in (*outputs, *inputs)}) == 1
        complete = len(outputs) == len(inputs) == self.size()
        taken = complete and alike and self._takes(*outputs, *inputs)
        if not taken:
            return self._by_gloo("alltoall", inputs, opts, outputs, inputs, opts)

        def call() -> None:
            received = torch.empty(sum(part.numel() for part in outputs), dtype=outputs[0].dtype)
            sends, receives = ([size_of(part) for part in parts] for parts in (inputs, outputs))
            self._library.all_to_all(received, concatenated(inputs), sends, receives)
            parts = received.split([part.numel() for part in outputs])
            for output, part in zip(outputs, parts, strict=True):
                output.detach().copy_(part.view(output.shape))

        return self._run(call, outputs, opts)

    def set_timeout(self, timeout: timedelta) -> None:
        if self._library is not None:
            self._library.set_timeout(int(timeout.total_seconds() * 1000))

    def shutdown(self) -> None:
        if self._library is not None:
            self._sequencer.close()

    def abort(self) -> None:
        if self._library is not None:
            self._library.break_off()
        super().abort()
        self.shutdown()

    def _end(self) -> None:
        if self._library is not None:
            self._library.break_off(library.MISMATCH)

    def _run(self, call: Callable[[], None], results: list[Tensor], opts: Any) -> Any:
        return self._sequencer.run(call, results, asynchronous=bool(getattr(opts, "asyncOp", False)))

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
