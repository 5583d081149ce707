# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The backend `ccl` of torch.distributed: oneCCL for what its C interface has, gloo for all else.

A collective is done when its call returns, also with `async_op=True`: DeepSpeed's class for this backend drops the
handles of asynchronous calls.
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

from accel_cpu.ccl.communicator import DTYPES, OPERATIONS, Communicator
from accel_cpu.shm import calls
from accel_cpu.shm.work import Finished

_NAMES = {getattr(dist.ReduceOp.RedOpType, name).value: name for name in OPERATIONS}


class CclProcessGroup(dist.ProcessGroup):
    """A process group on oneCCL. Raises `OneCCLFailed` on all ranks if one of them has no oneCCL.

    store, rank, size, timeout: as torch.distributed gives them to a backend. oneCCL has no time limit.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._gloo: Any = dist.ProcessGroupGloo(PrefixStore("gloo", store), rank, size, timeout=timeout)
        # What this class does not override is done by gloo.
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)
        self._communicator = Communicator(PrefixStore("ccl", store), rank, size)

    def getBackendName(self) -> str:
        return "ccl"

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        opts = opts or dist.AllreduceOptions()
        name = self._operation(tensors, opts)
        if name is None:
            return self._by_gloo("allreduce", tensors, opts)
        return self._reduce_each(tensors, name)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Any:
        opts = opts or dist.AllreduceCoalescedOptions()
        name = self._operation(tensors, opts)
        if name is None:
            return self._by_gloo("allreduce_coalesced", tensors, opts)
        return self._reduce_each(tensors, name)

    def reduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        opts = opts or dist.ReduceOptions()
        (tensor,), root = tensors, opts.rootRank
        name = self._operation(tensors, opts)
        if name is None:
            return self._by_gloo("reduce", tensors, opts)
        mine = root == self.rank()
        return _done(tensors, lambda: self._communicator.reduce(tensor, name, root, receives=mine))

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> Any:
        opts = opts or dist.BroadcastOptions()
        (tensor,) = tensors
        if not calls.is_plain(tensor):
            return self._by_gloo("broadcast", tensors, opts)
        return _done(tensors, lambda: self._communicator.broadcast(tensor, opts.rootRank))

    def barrier(self, opts: Any = None) -> Any:
        return _done([], self._communicator.barrier)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        (parts,), (tensor,) = outputs, inputs
        even = calls.are_even(parts, tensor, self.size())
        if not even or not all(map(calls.is_plain, [tensor, *parts])):
            return self._by_gloo("allgather", outputs, inputs, opts or AllgatherOptions())

        def call() -> None:
            gathered = torch.empty((self.size(), tensor.numel()), dtype=tensor.dtype)
            self._communicator.all_gather(gathered, tensor)
            for part, flat in zip(parts, gathered, strict=True):
                part.detach().copy_(flat.view(part.shape))

        return _done(parts, call)

    def _allgather_base(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        even = output.numel() == tensor.numel() * self.size() and output.dtype == tensor.dtype
        if not even or not all(map(calls.is_plain, (output, tensor))):
            return self._by_gloo("_allgather_base", output, tensor, opts or AllgatherOptions())
        return _done([output], lambda: self._communicator.all_gather(output, tensor))

    def allgather_into_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        for output, tensor in zip(outputs, inputs, strict=True):
            self._allgather_base(output, tensor, opts).wait()
        return Finished(outputs)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Any:
        opts = opts or dist.ReduceScatterOptions()
        (output,), (parts,) = outputs, inputs
        name = self._operation([output, *parts], opts)
        even = calls.are_even(parts, output, self.size())
        if name is None or not even:
            return self._by_gloo("reduce_scatter", outputs, inputs, opts)
        return _done(
            outputs, lambda: self._communicator.reduce_scatter(output, calls.concatenated(parts), name)
        )

    def _reduce_scatter_base(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        opts = opts or dist.ReduceScatterOptions()
        name = self._operation([output, tensor], opts)
        even = tensor.numel() == output.numel() * self.size() and output.dtype == tensor.dtype
        if name is None or not even:
            return self._by_gloo("_reduce_scatter_base", output, tensor, opts)
        return _done([output], lambda: self._communicator.reduce_scatter(output, tensor, name))

    def reduce_scatter_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        for output, tensor in zip(outputs, inputs, strict=True):
            self._reduce_scatter_base(output, tensor, opts).wait()
        return Finished(outputs)

    def alltoall_base(
        self, output: Tensor, tensor: Tensor, receives: Sequence[int], sends: Sequence[int], opts: Any = None
    ) -> Any:
        sizes = [
            calls.splits(tensor, list(sends), self.size()),
            calls.splits(output, list(receives), self.size()),
        ]
        even = all(size is not None and len(set(size)) == 1 for size in sizes) and sizes[0] == sizes[1]
        plain = calls.is_plain(output) and calls.is_plain(tensor) and output.dtype == tensor.dtype
        if self._gloo_for_all_to_all(even and plain):
            opts = opts or dist.AllToAllOptions()
            return self._by_gloo("alltoall_base", output, tensor, list(receives), list(sends), opts)
        return _done([output], lambda: self._communicator.all_to_all(output, tensor))

    def _gloo_for_all_to_all(self, even: bool) -> bool:
        """Agree with the other ranks: the parts may be equal on one rank and not on another."""
        uneven = torch.tensor([0 if even else 1], dtype=torch.int32)
        self._communicator.all_reduce(uneven, "MAX")
        return bool(uneven.item())

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        return self._by_gloo("gather", outputs, inputs, opts or dist.GatherOptions())

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Any:
        return self._by_gloo("scatter", outputs, inputs, opts or dist.ScatterOptions())

    def _by_gloo(self, name: str, outputs: Any, *arguments: Any) -> Finished:
        calls.by_gloo(self._gloo, name, outputs, *arguments)
        return Finished(outputs if isinstance(outputs, list) else [outputs])

    def shutdown(self) -> None:
        self._communicator.close()

    def _reduce_each(self, tensors: list[Tensor], name: str) -> Finished:
        for tensor in tensors:
            self._communicator.all_reduce(tensor, name)
        return Finished(tensors)

    def _operation(self, tensors: list[Tensor], opts: Any) -> str | None:
        """Return the operation's name; None if gloo has to do it."""
        name = _NAMES.get(opts.reduceOp.op.value)
        if not all(tensor.dtype in DTYPES and calls.is_plain(tensor) for tensor in tensors):
            return None
        if name == "AVG" and not all(tensor.is_floating_point() for tensor in tensors):
            return None
        return name

    # Names of torch >= 2.13.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base


def _done(results: list[Tensor], call: Callable[[], None]) -> Finished:
    call()
    return Finished(results)
