# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A process group of torch.distributed on host memory: a library's collectives where it has them, gloo for all else."""

# torch's stubs have several overloads and names for each method; torch calls these with these arguments.
# mypy: disable-error-code="override, explicit-override, assignment"
# ruff: noqa: B008 - nobody changes the default options

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDone
from datetime import timedelta
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions, PrefixStore  # not exported by torch.distributed

from accel_cpu.point_to_point import PairTransfer, PointToPoint

Tensors: TypeAlias = list[Tensor]
Lists: TypeAlias = list[Tensors]
Sizes: TypeAlias = Sequence[int]
_AVERAGE: int = getattr(dist.ReduceOp.RedOpType, "AVG").value  # noqa: B009 - torch's stubs lack it


class Handle(dist.Work):
    """The handle of a collective. done: its future on another thread; None: it is done."""

    def __init__(self, results: list[Any], done: Future[None] | None = None) -> None:
        super().__init__()
        self._results, self._done = results, done

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Raise what the collective has raised, or RuntimeError after the timeout."""
        if self._done is not None:
            seconds = timeout.total_seconds()
            try:
                self._done.result(seconds if seconds > 0 else None)
            except NotDone:
                if self._done.done():
                    raise
                raise RuntimeError(f"the collective was not done within {seconds:g} s") from None
        return True

    def is_completed(self) -> bool:
        return self._done is None or self._done.done()

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Any:
        return self._done.exception() if self._done is not None and self._done.done() else None

    def result(self) -> list[Any]:
        self.wait()
        return self._results

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()

        def finish(done: Future[None] | None) -> None:
            if done is not None and (error := done.exception()):
                future.set_exception(error)
            else:
                future.set_result(self._results)

        if self._done is None:
            finish(None)
        else:
            self._done.add_done_callback(finish)
        return future


class HostProcessGroup(dist.ProcessGroup):
    """The methods that torch calls. A subclass has the collectives on tensors, and decides when a call is run.

    store, rank, size, timeout: as torch.distributed gives them to a backend.
    """

    #: The library's number or name of an operation, by torch's; and the types that it reduces.
    operations: Mapping[int, Any]
    reducible: Collection[torch.dtype]

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._gloo: Any = dist.ProcessGroupGloo(PrefixStore("gloo", store), rank, size, timeout=timeout)
        # What this class does not override is done by gloo.
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)
        # torch >= 2.15 reads the default backend of each group, for its flight recorder.
        self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        _serve_monitored_barrier()
        self._point_to_point = PointToPoint(self._gloo, PrefixStore("point_to_point", store), rank, self._end)
        #: The collectives: `SharedMemory` or `Communicator`; None: gloo has to do all.
        self._library: Any = None

    def allreduce(self, tensors: Tensors, opts: Any = dist.AllreduceOptions()) -> Any:
        return self._all_reduce("allreduce", tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = dist.AllreduceCoalescedOptions()) -> Any:
        return self._all_reduce("allreduce_coalesced", tensors, opts)

    def _all_reduce(self, name: str, tensors: Tensors, opts: Any) -> Any:
        operation = self._operation(tensors, opts)
        if operation is None:
            return self._by_gloo(name, tensors, opts, tensors, opts)

        def call() -> None:
            for tensor in tensors:
                self._library.all_reduce(tensor, operation)

        return self._run(call, tensors, opts)

    def reduce(self, tensors: Tensors, opts: Any = dist.ReduceOptions()) -> Any:
        (tensor,), root = tensors, opts.rootRank
        operation = self._operation(tensors, opts)
        if operation is None:
            return self._by_gloo("reduce", tensors, opts, tensors, opts)
        return self._run(lambda: self._library.reduce(tensor, operation, root), tensors, opts)

    def broadcast(self, tensors: Tensors, opts: Any = dist.BroadcastOptions()) -> Any:
        (tensor,) = tensors
        if not self._takes(tensor):
            return self._by_gloo("broadcast", tensors, opts, tensors, opts)
        return self._run(lambda: self._library.broadcast(tensor, opts.rootRank), tensors, opts)

    def barrier(self, opts: Any = dist.BarrierOptions()) -> Any:
        if not self._takes():
            return self._by_gloo("barrier", [], opts, opts)
        return self._run(lambda: self._library.barrier(), [], opts)

    def allgather(self, outputs: Lists, inputs: Tensors, opts: Any = AllgatherOptions()) -> Any:
        (parts,), (tensor,) = outputs, inputs
        if not self._are_even(parts, tensor) or not self._takes(tensor, *parts):
            return self._by_gloo("allgather", inputs, opts, outputs, inputs, opts)

        def call() -> None:
            gathered = torch.empty((self.size(), tensor.numel()), dtype=tensor.dtype)
            self._library.all_gather(gathered, tensor)
            for part, flat in zip(parts, gathered, strict=True):
                part.detach().copy_(flat.view(part.shape))

        return self._run(call, parts, opts)

    def _allgather_base(self, output: Tensor, tensor: Tensor, opts: Any = AllgatherOptions()) -> Any:
        even = output.numel() == tensor.numel() * self.size() and output.dtype == tensor.dtype
        if not even or not self._takes(output, tensor):
            return self._by_gloo("_allgather_base", [tensor], opts, output, tensor, opts)
        return self._run(lambda: self._library.all_gather(output, tensor), [output], opts)

    def allgather_into_tensor_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = AllgatherOptions()
    ) -> Any:
        return self._each(self._allgather_base, outputs, inputs, opts)

    def reduce_scatter(self, outputs: Tensors, inputs: Lists, opts: Any = dist.ReduceScatterOptions()) -> Any:
        (output,), (parts,) = outputs, inputs
        operation = self._operation([output, *parts], opts)
        if operation is None or not self._are_even(parts, output):
            return self._by_gloo("reduce_scatter", outputs, opts, outputs, inputs, opts)
        return self._reduce_scatter_base(output, concatenated(parts), opts)

    def _reduce_scatter_base(
        self, output: Tensor, tensor: Tensor, opts: Any = dist.ReduceScatterOptions()
    ) -> Any:
        operation = self._operation([output, tensor], opts)
        even = tensor.numel() == output.numel() * self.size() and output.dtype == tensor.dtype
        if operation is None or not even:
            return self._by_gloo("_reduce_scatter_base", [output], opts, output, tensor, opts)
        return self._run(lambda: self._library.reduce_scatter(output, tensor, operation), [output], opts)

    def reduce_scatter_tensor_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = dist.ReduceScatterOptions()
    ) -> Any:
        return self._each(self._reduce_scatter_base, outputs, inputs, opts)

    def gather(self, outputs: Lists, inputs: Tensors, opts: Any = dist.GatherOptions()) -> Any:
        return self._by_gloo("gather", inputs, opts, outputs, inputs, opts)

    def scatter(self, outputs: Tensors, inputs: Lists, opts: Any = dist.ScatterOptions()) -> Any:
        return self._by_gloo("scatter", outputs, opts, outputs, inputs, opts)

    def alltoall_base(
        self,
        output: Tensor,
        tensor: Tensor,
        receives: Sizes,
        sends: Sizes,
        opts: Any = dist.AllToAllOptions(),
    ) -> Any:
        given = splits(tensor, list(sends), self.size())
        taken = splits(output, list(receives), self.size())
        alike = output.dtype == tensor.dtype and self._takes(output, tensor)
        if not self._exchanges(given if alike else None, taken):
            return self._by_gloo("alltoall_base", [tensor], opts, output, tensor, receives, sends, opts)
        return self._run(lambda: self._library.all_to_all(output, tensor, given, taken), [output], opts)

    def send(self, tensors: Tensors, to: int, tag: int) -> PairTransfer:
        return self._point_to_point.send(tensors[0], to, tag)

    def recv(self, tensors: Tensors, source: int, tag: int) -> PairTransfer:
        return self._point_to_point.receive(tensors[0], source, tag)

    def recv_anysource(self, tensors: Tensors, tag: int) -> PairTransfer:
        return self._point_to_point.receive(tensors[0], -1, tag)

    def _end(self) -> None:
        """End the group on all ranks: a send and its receive differ."""

    def _run(self, call: Callable[[], None], results: Tensors, opts: Any) -> Any:
        """Run the call, and return its handle."""
        call()
        return Handle(results)

    def _by_gloo(self, name: str, tensors: Sequence[Tensor], opts: Any, *arguments: Any) -> Any:
        """Run a function of gloo's process group with these arguments, and return the handle of `tensors`."""
        return self._run(lambda: call_gloo(self._gloo, name, *arguments).wait(), list(tensors), opts)

    def _exchanges(self, sends: list[int] | None, receives: list[int] | None) -> bool:
        """True if the library can send and receive parts of these sizes; None: what it cannot."""
        raise NotImplementedError

    def _takes(self, *tensors: Tensor) -> bool:
        return self._library is not None and all(map(is_plain, tensors))

    def _operation(self, tensors: Sequence[Tensor], opts: Any) -> Any:
        """Return the library's name of the operation; None if gloo has to do it."""
        if self._library is None:
            return None
        number = opts.reduceOp.op.value
        for tensor in tensors:
            if tensor.dtype not in self.reducible or not is_plain(tensor):
                return None
            if number == _AVERAGE and not tensor.is_floating_point():
                return None
        return self.operations.get(number)

    def _are_even(self, parts: Tensors, tensor: Tensor) -> bool:
        """Return whether there is a part for each rank, and each is like the tensor."""
        return len(parts) == self.size() and all(
            part.shape == tensor.shape and part.dtype == tensor.dtype for part in parts
        )

    def _each(self, collective: Any, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        work = None
        for output, tensor in zip(outputs, inputs, strict=True):
            work = collective(output, tensor, opts)  # in order: the last one's handle is that of all
        return work if work is not None else self.barrier()

    # Names of torch >= 2.13.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base


def by_value(operations: Mapping[str, Any]) -> dict[int, Any]:
    """Return the values by torch's number of an operation instead of its name."""
    return {getattr(dist.ReduceOp.RedOpType, name).value: own for name, own in operations.items()}


def _serve_monitored_barrier() -> None:
    """Let torch's function take groups of this package: it refuses all whose backend is not named gloo."""
    stock: Any = dist.monitored_barrier
    if hasattr(stock, "serves_host_groups"):
        return

    @functools.wraps(stock)
    def monitored_barrier(
        group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        chosen = dist.group.WORLD if group is None else group
        if isinstance(chosen, HostProcessGroup):
            limit = () if timeout is None else (timeout,)
            chosen._gloo.monitored_barrier(*limit, wait_all_ranks=wait_all_ranks)
        else:
            stock(group, timeout, wait_all_ranks)

    monitored_barrier.serves_host_groups = True  # type: ignore[attr-defined]
    for module in (dist, dist.distributed_c10d):
        module.monitored_barrier = monitored_barrier  # type: ignore[attr-defined]


def call_gloo(gloo: Any, name: str, outputs: Any, *arguments: Any) -> Any:
    """Call a function of gloo's process group; returns its handle. outputs: its first argument, tensors that it writes.

    Of tensors with strides it gets copies, and is waited for: gloo 2.13 reads and writes some as if they had none.
    """
    copies: list[tuple[Tensor, Tensor]] = []
    written = _copied(outputs, copies)
    results = list(copies)
    work = getattr(gloo, name)(written, *(_copied(argument, copies) for argument in arguments))
    if any(flat is not tensor for flat, tensor in copies):
        work.wait()
        for flat, tensor in results:
            store(flat, tensor)
    return work


def _copied(value: Any, copies: list[tuple[Tensor, Tensor]]) -> Any:
    """Return an argument with tensors as `contiguous` gives them; each goes to `copies` with its original."""
    # Within `call_gloo` it would be a reference cycle, which keeps the tensors until Python's collector runs.
    if isinstance(value, list):
        return [_copied(item, copies) for item in value]
    if not isinstance(value, Tensor) or not is_plain(value):
        return value
    copies.append((contiguous(value), value))
    return copies[-1][0]


def is_plain(tensor: Tensor) -> bool:
    """Return whether the tensor's values are in host memory, one after the other or with strides."""
    return tensor.is_cpu and tensor.layout == torch.strided and not tensor.is_quantized


def contiguous(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy if its memory does not hold its values in order."""
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def store(flat: Tensor, tensor: Tensor) -> None:
    """Copy the result back, if `flat` is a copy that `contiguous` made."""
    if flat is not tensor:
        tensor.detach().copy_(flat.view_as(tensor))


def concatenated(parts: Tensors) -> Tensor:
    """Return the values of the tensors in one flat tensor."""
    return torch.cat([contiguous(part.detach()).view(-1) for part in parts])


def splits(tensor: Tensor, rows: list[int], ranks: int) -> list[int] | None:
    """Return the bytes for each rank, given rows for each (none: equal parts); None if they do not add up."""
    if not tensor.dim():
        return None
    length = tensor.size(0)
    if not rows and length % ranks == 0:
        rows = [length // ranks] * ranks
    if len(rows) != ranks or sum(rows) != length or min(rows) < 0:
        return None
    row = tensor.nbytes // length if length else 0
    return [count * row for count in rows]
