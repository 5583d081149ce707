# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Send and receive by gloo, which fills a part of a larger tensor, and aborts the process for a smaller one.

The tag that gloo gets is computed from dtype and size, so that it moves nothing between tensors that differ. A header
with both goes ahead under its own tag. A receiver that finds another header than its own puts both into torch's
store and closes its connections, which ends the sender's wait.
"""

# mypy: disable-error-code="override, explicit-override"

from __future__ import annotations

import contextlib
import copy
import functools
import threading
import zlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from accel_core.errors import AccelError
from accel_cpu.errors import CollectiveMismatch

_DTYPES = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
_NUMBERS = {dtype: number for number, dtype in enumerate(_DTYPES)}
#: Tags are below it; those of headers have this bit.
_HEADER = 1 << 30
_AT_ONCE = timedelta(milliseconds=1)


class PointToPoint:
    """The sends and receives of one rank of a group.

    among: torch store with its own prefix.
    end:   ends the collectives of the group; called if a send and its receive differ.
    """

    def __init__(self, gloo: Any, among: Any, rank: int, end: Callable[[], None]) -> None:
        self._gloo, self._store, self._rank, self._end = gloo, among, rank, end
        self._turn = threading.Lock()  # header and data of a call are posted together
        self._failure: AccelError | None = None

    def send(self, tensor: Tensor, peer: int, tag: int) -> PairTransfer:
        """Start to send a tensor."""
        mine, data_tag, header_tag = self._prepared(tensor, tag)
        with self._turn:
            header = self._gloo.send([mine], peer, header_tag)
            data = self._gloo.send([tensor], peer, data_tag)

        # The header arrives before the data; this keeps it alive until then.
        def finish(*timeout: timedelta, header: Any = header) -> int:
            data.wait(*timeout)
            return peer

        return PairTransfer(tensor, finish, functools.partial(self._explained, peer))

    def receive(self, tensor: Tensor, peer: int, tag: int) -> PairTransfer:
        """Start to receive a tensor; from any rank if `peer` is negative."""
        mine, data_tag, header_tag = self._prepared(tensor, tag)
        theirs = torch.empty_like(mine)
        data: Any = None
        with self._turn:
            if peer >= 0:
                header = self._gloo.recv([theirs], peer, header_tag)
                data = self._gloo.recv([tensor], peer, data_tag)
            else:
                header = self._gloo.recv_anysource([theirs], header_tag)

        def finish(*timeout: timedelta) -> int:
            header.wait(*timeout)
            source: int = header._source_rank()
            if not torch.equal(mine, theirs):
                raise self._differs(source, mine, theirs)
            (data or self._gloo.recv([tensor], source, data_tag)).wait(*timeout)
            return source

        return PairTransfer(tensor, finish, functools.partial(self._explained, peer), at_once=peer < 0)

    def _prepared(self, tensor: Tensor, tag: int) -> tuple[Tensor, int, int]:
        if self._failure is not None:
            raise copy.copy(self._failure)
        if not (tensor.is_cpu and tensor.layout == torch.strided and tensor.is_contiguous()):
            raise ValueError("send and recv take contiguous tensors in host memory")
        return _header(_NUMBERS[tensor.dtype], tensor.numel(), tag)

    def _differs(self, peer: int, mine: Tensor, theirs: Tensor) -> AccelError:
        (sent, size), (expected, room) = theirs.tolist(), mine.tolist()
        both = (
            f"rank {peer} sends {size} elements of {_DTYPES[sent]}\n"
            f"rank {self._rank} receives {room} elements of {_DTYPES[expected]}"
        )
        with contextlib.suppress(Exception):  # the store may be gone
            self._store.set(str(self._rank), both)
        with contextlib.suppress(RuntimeError):  # a wait that takes too long closes gloo's connections
            self._gloo.recv([torch.empty(1)], peer, 2 * _HEADER - 1).wait(_AT_ONCE)
        self._end()
        return self._failed(peer, both)

    def _explained(self, peer: int, error: Exception) -> Exception:
        """Return what the peer has put into the store; the error if that is nothing, or it is an error of ours."""
        with contextlib.suppress(Exception):
            if not isinstance(error, AccelError) and self._store.check([str(peer)]):
                return self._failed(peer, self._store.get(str(peer)).decode(errors="replace"))
        return error

    def _failed(self, peer: int, both: str) -> AccelError:
        self._failure = CollectiveMismatch(
            f"rank {self._rank} and rank {peer} send and receive different tensors: {both}",
            do=(
                "print shape and dtype on both ranks ahead of the call; a DeepSpeed pipeline whose shapes change needs "
                "PipelineModule(dynamic_shape=True)"
            ),
        )
        return copy.copy(self._failure)


@functools.lru_cache(1000)
def _header(number: int, size: int, tag: int) -> tuple[Tensor, int, int]:
    """Return header, tag of the data and tag of the header."""
    data_tag = zlib.crc32(b"%d %d %d" % (tag, number, size)) % _HEADER
    return torch.tensor((number, size)), data_tag, tag % _HEADER + _HEADER


class PairTransfer(dist.Work):
    """Handle of a send or receive that runs in `wait`, as with gloo. at_once: run it in a thread immediately.

    explained: returns the error to raise for one.
    """

    def __init__(
        self, tensor: Tensor, finish: Callable[..., int], explained: Any, *, at_once: bool = False
    ) -> None:
        super().__init__()
        self._tensor, self._finish, self._explained = tensor, finish, explained
        self._source = -1
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True) if at_once else None
        if self._thread is not None:
            self._thread.start()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        if self._thread is not None:
            self._thread.join(timeout.total_seconds() or None)
        elif not self.is_completed():
            self._run(*((timeout,) if timeout else ()))
        if self._error is not None:
            raise self._error
        return self.is_success()

    def _run(self, *timeout: timedelta) -> None:
        try:
            self._source = self._finish(*timeout)
        except Exception as error:
            self._error = self._explained(error)

    def is_completed(self) -> bool:
        return self._source >= 0 or self._error is not None

    def is_success(self) -> bool:
        return self._source >= 0

    def exception(self) -> Any:
        return self._error

    def result(self) -> list[Tensor]:
        return [self._tensor]

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank
