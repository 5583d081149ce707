# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The backend `shm` of torch.distributed: shared memory for what it has, gloo for all else.

Before a collective of all ranks is handed to gloo, the ranks compare what they are about to do. Otherwise a rank in
gloo and one in shared memory would wait for each other without end.
"""

# torch's stubs have several overloads and names for each method; torch calls these with these arguments.
# mypy: disable-error-code="override, explicit-override, assignment"

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions, PrefixStore  # not exported by torch.distributed

from accel_cpu.shm import calls, library, rendezvous
from accel_cpu.shm.memory import SharedMemory
from accel_cpu.shm.work import Sequencer

#: In the order of ACCEL_SHM_SUM ….
_OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
_NUMBERS = {getattr(dist.ReduceOp.RedOpType, name).value: number for number, name in enumerate(_OPERATIONS)}
_AVG = 1


class ShmProcessGroup(dist.ProcessGroup):
    """A process group whose ranks share memory.

    store, rank, size, timeout: as torch.distributed gives them to a backend.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._gloo = dist.ProcessGroupGloo(PrefixStore("gloo", store), rank, size, timeout=timeout)
        # What this class does not override is done by gloo.
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)
        joined = rendezvous.join(PrefixStore("shm", store), rank, size)
        #: Whether the ranks share memory, or why not.
        self.reason = joined.reason
        milliseconds = int(timeout.total_seconds() * 1000)
        names = [str(dtype).removeprefix("torch.") for dtype in calls.DTYPES]
        self._memory = SharedMemory(joined.handle, rank, milliseconds, names) if joined.handle else None
        self._sequencer = Sequencer()

    def getBackendName(self) -> str:
        return "shm"

    # ------------------------------------------------------------------------------- all ranks alike

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        opts = opts or dist.AllreduceOptions()
        (tensor,) = tensors
        memory, operation = self._memory, self._reduction(tensor, opts)
        if memory is None or operation is None:
            return self._by_gloo("allreduce", tensors, opts, tensors, opts)
        return self._run(lambda: calls.all_reduce(memory, tensor, operation), tensors, opts)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Any:
        opts = opts or dist.AllreduceCoalescedOptions()
        memory, operations = self._memory, [self._reduction(tensor, opts) for tensor in tensors]
        if memory is None or None in operations:
            return self._by_gloo("allreduce_coalesced", tensors, opts, tensors, opts)

        def call() -> None:
            for tensor, operation in zip(tensors, operations, strict=True):
                calls.all_reduce(memory, tensor, operation or 0)

        return self._run(call, tensors, opts)

    def reduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        opts = opts or dist.ReduceOptions()
        (tensor,), root = tensors, opts.rootRank
        memory, operation = self._memory, self._reduction(tensor, opts)
        if memory is None or operation is None:
            return self._by_gloo("reduce", tensors, opts, tensors, opts)
        mine = root == self.rank()
        return self._run(lambda: calls.reduce(memory, tensor, operation, root, receives=mine), tensors, opts)

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> Any:
        opts = opts or dist.BroadcastOptions()
        (tensor,) = tensors
        memory = self._memory
        if memory is None or not calls.is_plain(tensor):
            return self._by_gloo("broadcast", tensors, opts, tensors, opts)
        return self._run(lambda: calls.broadcast(memory, tensor, opts.rootRank), tensors, opts)

    def barrier(self, opts: Any = None) -> Any:
        opts = opts or dist.BarrierOptions()
        memory = self._memory
        if memory is None:
            return self._by_gloo("barrier", [], opts, opts)
        return self._run(lambda: memory.run(library.BARRIER, 0, 0), [], opts)

    # ------------------------------------------------------------------------------------- gathering

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        opts = opts or AllgatherOptions()
        (parts,), (tensor,) = outputs, inputs
        memory = self._memory
        even = calls.are_even(parts, tensor, self.size())
        if memory is None or not even or not all(map(calls.is_plain, [tensor, *parts])):
            return self._by_gloo("allgather", inputs, opts, outputs, inputs, opts)

        def call() -> None:
            gathered = torch.empty((self.size(), tensor.numel()), dtype=tensor.dtype)
            calls.gather(memory, gathered, tensor)
            for part, flat in zip(parts, gathered, strict=True):
                part.detach().copy_(flat.view(part.shape))

        return self._run(call, parts, opts)

    def _allgather_base(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        opts = opts or AllgatherOptions()
        memory = self._memory
        even = output.numel() == tensor.numel() * self.size() and output.dtype == tensor.dtype
        if memory is None or not even or not all(map(calls.is_plain, (output, tensor))):
            return self._by_gloo("_allgather_base", [tensor], opts, output, tensor, opts)
        return self._run(lambda: calls.gather(memory, output, tensor), [output], opts)

    def allgather_into_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        return self._each(self._allgather_base, outputs, inputs, opts or AllgatherOptions())

    # ------------------------------------------------------------------------------------ scattering

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Any:
        opts = opts or dist.ReduceScatterOptions()
        (output,), (parts,) = outputs, inputs
        memory, operation = self._memory, self._reduction(output, opts)
        even = calls.are_even(parts, output, self.size())
        if memory is None or operation is None or not even or not all(map(calls.is_plain, parts)):
            return self._by_gloo("reduce_scatter", outputs, opts, outputs, inputs, opts)

        def call() -> None:
            calls.reduce_scatter(memory, output, calls.concatenated(parts), operation)

        return self._run(call, outputs, opts)

    def _reduce_scatter_base(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        opts = opts or dist.ReduceScatterOptions()
        memory, operation = self._memory, self._reduction(output, opts)
        even = tensor.numel() == output.numel() * self.size() and output.dtype == tensor.dtype
        if memory is None or operation is None or not even or not calls.is_plain(tensor):
            return self._by_gloo("_reduce_scatter_base", [output], opts, output, tensor, opts)
        return self._run(lambda: calls.reduce_scatter(memory, output, tensor, operation), [output], opts)

    def reduce_scatter_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        return self._each(self._reduce_scatter_base, outputs, inputs, opts or dist.ReduceScatterOptions())

    # ------------------------------------------------------------------------------------ all to all

    def alltoall_base(
        self, output: Tensor, tensor: Tensor, receives: Sequence[int], sends: Sequence[int], opts: Any = None
    ) -> Any:
        opts = opts or dist.AllToAllOptions()
        memory = self._memory
        given = calls.splits(tensor, list(sends), self.size())
        taken = calls.splits(output, list(receives), self.size())
        plain = calls.is_plain(output) and calls.is_plain(tensor) and output.dtype == tensor.dtype
        if memory is None or given is None or taken is None or not plain:
            return self._by_gloo("alltoall_base", [tensor], opts, output, tensor, receives, sends, opts)
        return self._run(lambda: calls.exchange(memory, output, tensor, given, taken), [output], opts)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        opts = opts or dist.AllToAllOptions()
        memory = self._memory
        alike = len({tensor.dtype for tensor in (*outputs, *inputs)}) == 1
        complete = len(outputs) == len(inputs) == self.size()
        if memory is None or not complete or not alike or not all(map(calls.is_plain, [*outputs, *inputs])):
            return self._by_gloo("alltoall", inputs, opts, outputs, inputs, opts)

        def call() -> None:
            received = torch.empty(sum(part.numel() for part in outputs), dtype=outputs[0].dtype)
            sends, receives = ([calls.size_of(part) for part in parts] for parts in (inputs, outputs))
            calls.exchange(memory, received, calls.concatenated(inputs), sends, receives)
            parts = received.split([part.numel() for part in outputs])
            for output, part in zip(outputs, parts, strict=True):
                output.detach().copy_(part.view(output.shape))

        return self._run(call, outputs, opts)

    # --------------------------------------------------------------------------------------- by gloo

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        opts = opts or dist.GatherOptions()
        return self._by_gloo("gather", inputs, opts, outputs, inputs, opts)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Any:
        opts = opts or dist.ScatterOptions()
        return self._by_gloo("scatter", outputs, opts, outputs, inputs, opts)

    def _by_gloo(self, name: str, tensors: Sequence[Tensor], opts: Any, *arguments: Any) -> Any:
        memory = self._memory

        def call() -> None:
            if memory is not None:
                what = f"{name} {opts.reduceOp.op}" if hasattr(opts, "reduceOp") else name
                calls.compare(memory, what, tensors[0] if tensors else None, getattr(opts, "rootRank", 0))
            calls.by_gloo(self._gloo, name, *arguments)

        return self._run(call, list(tensors), opts)

    # ------------------------------------------------------------------------------------------ life

    def set_timeout(self, timeout: timedelta) -> None:
        if self._memory is not None:
            self._memory.set_timeout(int(timeout.total_seconds() * 1000))

    def shutdown(self) -> None:
        memory = self._memory
        if memory is None:
            self._sequencer.close(lambda: None, lambda: None)
        else:
            self._sequencer.close(memory.close, memory.break_off)

    def abort(self) -> None:
        if self._memory is not None:
            self._memory.break_off()
        super().abort()
        self.shutdown()

    def _run(self, call: Callable[[], None], results: list[Tensor], opts: Any) -> Any:
        return self._sequencer.run(call, results, asynchronous=bool(getattr(opts, "asyncOp", False)))

    def _each(self, collective: Any, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> Any:
        work = None
        for output, tensor in zip(outputs, inputs, strict=True):
            work = collective(output, tensor, opts)  # in order: the last one's handle is that of all
        return work if work is not None else self.barrier()

    def _reduction(self, tensor: Tensor, opts: Any) -> int | None:
        """Return the operation's number in csrc/accel_shm.h; None if gloo has to do it."""
        number = _NUMBERS.get(opts.reduceOp.op.value)
        reducible = tensor.dtype in (calls.FLOATS if number == _AVG else calls.REDUCIBLE)
        return number if reducible and calls.is_plain(tensor) else None

    # Names of torch >= 2.13.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base
