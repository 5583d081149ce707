# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives of ranks on several hosts: in shared memory within a host, by gloo between the hosts.

The first rank of each host is its leader. The leaders compare what their hosts have called before they exchange data.
A leader that fails informs the others through torch's store, and closes its connections, so that nobody waits for it.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore  # not exported by torch.distributed
from typing_extensions import override

from accel_core.errors import AccelError
from accel_cpu.exchange import shown
from accel_cpu.process_group import contiguous, store
from accel_cpu.shm import library
from accel_cpu.shm.library import DTYPES
from accel_cpu.shm.memory import OPERATIONS, SharedMemory

#: How long a leader waits for another one to say that it is alive, after gloo has failed.
_ROLL_CALL = timedelta(seconds=2)


class Hosts(SharedMemory):
    """The collectives of `SharedMemory` on the ranks of several hosts.

    group:   this host's memory.
    hosts:   the ranks of each host.
    among:   torch's store, with a prefix that nobody else uses.
    gloo:    the process group of all ranks.
    """

    kinds = (*SharedMemory.kinds[: library.REDUCE], "all_reduce")  # whose first step it is

    def __init__(
        self, group: Any, rank: int, hosts: Sequence[Sequence[int]], among: Any, timeout: timedelta, gloo: Any
    ) -> None:
        self._hosts, self._gloo = hosts, gloo
        self._host = next(index for index, ranks in enumerate(hosts) if rank in ranks)
        super().__init__(group, rank, hosts[self._host], timeout)
        self._store = among
        self._leaders: Any = None
        if rank == hosts[self._host][0]:
            self._leaders = dist.ProcessGroupGloo(
                PrefixStore("leaders", among), self._host, len(hosts), timeout=timeout
            )

    @override
    def reduced_at_once(self, tensor: Tensor, operation: int) -> bool:
        return False

    @override
    def barrier(self) -> None:
        self.compare("barrier", None, 0)

    @override
    def all_reduce(self, tensor: Tensor, operation: int) -> None:
        name = OPERATIONS[operation]
        flat = contiguous(tensor.detach())
        with self._together("all_reduce"):
            super().reduce(flat, operation, 0)

            def among_leaders(gloo: Any) -> None:
                options = dist.AllreduceOptions()
                options.reduceOp = getattr(dist.ReduceOp, "SUM" if name == "AVG" else name)
                if name == "AVG":  # of the hosts' averages; a sum of all ranks could overflow
                    flat.mul_(len(self._ranks) / sum(map(len, self._hosts)))
                gloo.allreduce([flat], options).wait()

            self._between(f"all_reduce {name} {[*tensor.squeeze().shape]}", flat, among_leaders)
            super().broadcast(flat, 0)
        store(flat, tensor)

    @override
    def reduce(self, tensor: Tensor, operation: int, root: int) -> None:
        self.all_reduce(tensor if root == self._rank else tensor.detach().clone(), operation)

    @override
    def reduce_scatter(self, output: Tensor, tensor: Tensor, operation: int) -> None:
        whole = contiguous(tensor.detach()).clone().view(-1)
        self.all_reduce(whole, operation)
        output.detach().copy_(whole.view(sum(map(len, self._hosts)), -1)[self._rank].view(output.shape))

    @override
    def broadcast(self, tensor: Tensor, root: int) -> None:
        flat = contiguous(tensor.detach())
        source = next(index for index, ranks in enumerate(self._hosts) if root in ranks)
        with self._together("broadcast"):
            if source == self._host:
                super().broadcast(flat, list(self._ranks).index(root))
            self._between(
                f"broadcast {root} {[*tensor.squeeze().shape]}", flat, lambda gloo: _send(gloo, flat, source)
            )
            if source != self._host:
                super().broadcast(flat, 0)
        store(flat, tensor)

    @override
    def all_gather(self, output: Tensor, tensor: Tensor) -> None:
        flat = contiguous(tensor.detach()).view(-1)
        gathered = torch.empty((sum(map(len, self._hosts)), flat.numel()), dtype=flat.dtype)
        mine = torch.empty((len(self._ranks), flat.numel()), dtype=flat.dtype)
        with self._together("all_gather"):
            super().all_gather(mine, flat)

            def among_leaders(gloo: Any) -> None:
                for index, ranks in enumerate(self._hosts):
                    part = mine if index == self._host else gathered.new_empty((len(ranks), flat.numel()))
                    _send(gloo, part, index)
                    for row, rank in enumerate(ranks):
                        gathered[rank].copy_(part[row])

            self._between("all_gather", flat, among_leaders)
            super().broadcast(gathered, 0)
        output.detach().copy_(gathered.view(output.shape))

    @override
    def all_to_all(self, output: Tensor, tensor: Tensor, sends: list[int], receives: list[int]) -> None:
        flat, received = contiguous(tensor.detach()), contiguous(output.detach())
        self.compare(f"all_to_all {tensor.dtype}", None, 0)
        mine = torch.tensor([sends, receives])
        tables = [torch.empty_like(mine) for _ in sends]
        self._gloo.allgather([tables], [mine]).wait()
        sent, expected = torch.stack(tables).unbind(1)
        for sender, receiver in (sent != expected.t()).nonzero().tolist():
            self.break_off(library.MISMATCH)
            sizes = int(sent[sender, receiver]), int(expected[receiver, sender])
            raise self._kept(self._parts_differ(sender, receiver, *sizes))
        # A contiguous tensor of one element may have any stride, of which torch makes no view as bytes.
        parts = [each.as_strided((each.numel(),), (1,)).view(torch.uint8) for each in (received, flat)]
        self._gloo.alltoall_base(*parts, receives, sends, dist.AllToAllOptions()).wait()
        store(received, output)

    @override
    def compare(self, what: str, tensor: Tensor | None, root: int) -> None:
        with self._together(what):
            super().compare(f"{what} {root}", tensor, 0)
            self._between(f"{what} {root}", tensor)
            super().barrier()

    @override
    def close(self) -> None:
        self._leaders = None
        super().close()

    def _between(
        self, what: str, tensor: Tensor | None = None, work: Callable[[Any], None] = lambda _: None
    ) -> None:
        """Work among the leaders, if this is one, once all have found that their hosts called the same."""
        if self._leaders is None:
            return
        dtype, size = -1, 0
        if tensor is not None and tensor.layout == torch.strided:
            dtype, size = DTYPES[tensor.dtype], tensor.nbytes
        mine = torch.tensor([zlib.crc32(what.encode()), dtype, size])
        calls = [torch.empty_like(mine) for _ in self._hosts]
        self._leaders.allgather([calls], [mine]).wait()
        for index, call in enumerate(calls):
            if not torch.equal(call, mine):
                rank = self._hosts[index][0]
                self.break_off(library.HOST_DIFFERS, rank)
                raise self._kept(self._error(f"{what}, {size} bytes", library.HOST_DIFFERS, rank))
        work(self._leaders)

    @contextlib.contextmanager
    def _together(self, what: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if self._leaders is None:
                raise
            raise self._end(what, error) from error

    def _end(self, what: str, error: BaseException) -> BaseException:
        """End the group on all hosts; return the error to raise."""
        self._leaders = None  # which closes its connections
        own = isinstance(error, AccelError) or not isinstance(error, Exception)  # of this host
        lost, cause = 0, ""  # if the store is gone, too
        try:
            found = error.message if isinstance(error, AccelError) else type(error).__name__
            self._store.set(f"ended/{self._host}", shown(found) if own else "")
            if not own:
                lost, cause = self._lost()
        except Exception:
            own = own or self._host == 0
        if own:
            self.break_off()
            return error
        rank = self._hosts[lost][0]
        self.break_off(library.HOST_LOST, rank)
        return self._kept(self._error(f"{what}{cause}", library.HOST_LOST, rank))

    def _lost(self) -> tuple[int, str]:
        """Return the host that was lost, and why, as far as it could say."""
        silent = -1
        for index in range(len(self._hosts)):
            if index == self._host:
                continue
            try:
                self._store.wait([f"ended/{index}"], _ROLL_CALL)
            except Exception:
                silent = index if silent < 0 else silent
                continue
            if cause := self._store.get(f"ended/{index}").decode(errors="replace"):
                return index, f" ({shown(cause)})"
        return max(silent, 0), ""


def _send(gloo: Any, tensor: Tensor, root: int) -> None:
    """Broadcast among the leaders as bytes, because gloo does not have every type."""
    options = dist.BroadcastOptions()
    options.rootRank = root
    gloo.broadcast([tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)], options).wait()
