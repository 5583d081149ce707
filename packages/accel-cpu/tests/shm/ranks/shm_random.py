# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Random calls of everything that the process group has, in groups of all ranks and of some."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from shm_values import FLOATS, INTEGERS, OPERATIONS, check_moved, check_reduced, fill
from torch import Tensor

#: Around the sizes at which the algorithm changes: a cache line, 32 KiB, a slot.
_EDGES = (0, 1, 2, 15, 63, 64, 65, 4096, 8191, 8193)
_MOVED = (*FLOATS, *INTEGERS, torch.bool, torch.int16, torch.complex64)


@dataclass
class Call:
    """What the members of a group are about to do. size: elements of the larger one of input and output.

    start: where a member's sequence of values begins, by its rank in the group. ranks: of the members in the world.
    """

    group: Any
    ranks: list[int]
    me: int
    dtype: torch.dtype
    operation: str
    size: int
    stride: int
    root: int
    start: list[int]
    asynchronous: bool

    @property
    def count(self) -> int:
        return len(self.ranks)

    @property
    def share(self) -> int:
        """Elements for each member."""
        return self.size // self.count

    def empty(self, size: int) -> Tensor:
        """Return a tensor of one dimension with the call's stride, which does not begin at the start of its memory."""
        return torch.zeros(size * self.stride + 1, dtype=self.dtype)[1 :: self.stride][:size]

    def mine(self, size: int) -> Tensor:
        return fill(self.empty(size), self.start[self.me])

    def run(self, function: Callable[..., Any], *arguments: Any, **more: Any) -> None:
        work = function(*arguments, group=self.group, async_op=self.asynchronous, **more)
        if self.asynchronous:
            work.wait()

    @property
    def exact(self) -> bool:
        return self.dtype in INTEGERS or self.operation in ("MIN", "MAX")


def all_reduce(call: Call) -> list[Tensor]:
    tensor = call.mine(call.size)
    call.run(dist.all_reduce, tensor, op=getattr(dist.ReduceOp, call.operation))
    check_reduced(tensor, call.start, 0, call.operation)
    return [tensor]


def reduce(call: Call) -> list[Tensor]:
    tensor = call.mine(call.size)
    operation = getattr(dist.ReduceOp, call.operation)
    call.run(dist.reduce, tensor, call.ranks[call.root], op=operation)
    if call.me != call.root:
        return []  # undefined in torch
    check_reduced(tensor, call.start, 0, call.operation)
    return [tensor]


def reduce_scatter_tensor(call: Call) -> list[Tensor]:
    output, tensor = call.empty(call.share), call.mine(call.share * call.count)
    call.run(dist.reduce_scatter_tensor, output, tensor, op=getattr(dist.ReduceOp, call.operation))
    check_reduced(output, call.start, call.me * call.share, call.operation)
    return [output]


def reduce_scatter(call: Call) -> list[Tensor]:
    output = call.empty(call.share)
    given = [
        fill(call.empty(call.share), call.start[call.me], peer * call.share) for peer in range(call.count)
    ]
    call.run(dist.reduce_scatter, output, given, op=getattr(dist.ReduceOp, call.operation))
    check_reduced(output, call.start, call.me * call.share, call.operation)
    return [output]


def broadcast(call: Call) -> None:
    tensor = call.mine(call.size)
    call.run(dist.broadcast, tensor, call.ranks[call.root])
    check_moved(tensor, call.start[call.root], 0)


def all_gather_into_tensor(call: Call) -> None:
    output = call.empty(call.share * call.count)
    call.run(dist.all_gather_into_tensor, output, call.mine(call.share))
    for start, found in zip(call.start, output.view(call.count, call.share), strict=True):
        check_moved(found, start, 0)


def all_gather(call: Call) -> None:
    outputs = [call.empty(call.share) for _ in call.ranks]
    call.run(dist.all_gather, outputs, call.mine(call.share))
    for start, found in zip(call.start, outputs, strict=True):
        check_moved(found, start, 0)


def gather(call: Call) -> None:
    outputs = [call.empty(call.share) for _ in call.ranks] if call.me == call.root else None
    call.run(dist.gather, call.mine(call.share), outputs, call.ranks[call.root])
    for start, found in zip(call.start, outputs or [], strict=outputs is not None):
        check_moved(found, start, 0)


def scatter(call: Call) -> None:
    output, given = call.empty(call.share), None
    if call.me == call.root:
        given = [
            fill(call.empty(call.share), call.start[call.root], peer * call.share)
            for peer in range(call.count)
        ]
    call.run(dist.scatter, output, given, call.ranks[call.root])
    check_moved(output, call.start[call.root], call.me * call.share)


def all_to_all_single(call: Call) -> None:
    output = call.empty(call.share * call.count)
    call.run(dist.all_to_all_single, output, call.mine(call.share * call.count))
    for start, found in zip(call.start, output.view(call.count, call.share), strict=True):
        check_moved(found, start, call.me * call.share)


def _sent(call: Call) -> list[list[int]]:
    """Return how many elements each member sends to each."""
    choose = random.Random(call.start[0])
    return [[choose.randrange(call.share + 1) for _ in call.ranks] for _ in call.ranks]


def uneven_all_to_all_single(call: Call) -> None:
    sent, me = _sent(call), call.me
    receives = [row[me] for row in sent]
    output = call.empty(sum(receives))
    call.run(dist.all_to_all_single, output, call.mine(sum(sent[me])), receives, sent[me])
    for start, row, found in zip(call.start, sent, output.split(receives), strict=True):
        check_moved(found, start, sum(row[:me]))


def all_to_all(call: Call) -> None:
    sent, me = _sent(call), call.me
    given = [
        fill(call.empty(count), call.start[me], sum(sent[me][:peer])) for peer, count in enumerate(sent[me])
    ]
    outputs = [call.empty(row[me]) for row in sent]
    call.run(dist.all_to_all, outputs, given)
    for start, row, found in zip(call.start, sent, outputs, strict=True):
        check_moved(found, start, sum(row[:me]))


def send_and_recv(call: Call) -> None:
    """Each member sends to the next one; contiguous, which torch asks for."""
    after, before = (call.me + 1) % call.count, (call.me - 1) % call.count
    tensor, received = call.mine(call.share).contiguous(), torch.empty(call.share, dtype=call.dtype)
    if call.count == 1:
        return
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.isend, tensor, call.ranks[after], call.group),
        dist.P2POp(dist.irecv, received, call.ranks[before], call.group),
    ])  # fmt: skip
    for work in works:
        work.wait()
    check_moved(received, call.start[before], 0)


REDUCTIONS = (all_reduce, all_reduce, reduce, reduce_scatter_tensor, reduce_scatter)
MOVEMENTS = (
    broadcast, all_gather_into_tensor, all_gather, all_to_all_single, uneven_all_to_all_single, all_to_all,
)  # fmt: skip
BY_GLOO = (gather, scatter, send_and_recv)  # fewer types
FUNCTIONS = REDUCTIONS + MOVEMENTS + BY_GLOO


def _drawn(choose: random.Random, rank: int, groups: list[Any], largest: int) -> tuple[Any, Any, Call]:
    """Return a function, the group of gloo with the same members, and the call."""
    function: Any = choose.choice(FUNCTIONS)
    ranks, group, gloo = choose.choice(groups)
    size = choose.choice(_EDGES) if choose.random() < 0.2 else int(largest ** choose.random())
    operation = choose.choice(OPERATIONS)
    types = FLOATS if operation == "AVG" else FLOATS + INTEGERS
    dtype = choose.choice(_MOVED if function in MOVEMENTS else types)
    # Of large tensors gaps would take most of the memory.
    stride = choose.choice((1, 1, 2, 3)) if size < 4 << 20 else 1 + (choose.random() < 0.3)
    me = ranks.index(rank) if rank in ranks else -1
    start = [choose.randrange(2**30) for _ in ranks]
    root, later = choose.randrange(len(ranks)), choose.random() < 0.2
    return function, gloo, Call(group, ranks, me, dtype, operation, size, stride, root, start, later)


def calls(rank: int, ranks: int, seed: int, count: int, largest: int) -> Counter[str]:
    """Make random calls of up to `largest` elements, each checked; exact reductions also against gloo's.

    Returns how often each function was called, and "as gloo": reductions that were compared; each by one rank.
    """
    choose, done = random.Random(seed), Counter[str]()
    members = [list(range(ranks)), *(choose.sample(range(ranks), choose.randint(1, ranks)) for _ in range(3))]
    members = [sorted(some) for some in members]
    groups = [(some, dist.new_group(some), dist.new_group(some, backend="gloo")) for some in members]
    for _ in range(count):
        function, gloo, call = _drawn(choose, rank, groups, largest)
        if call.me < 0:
            continue
        done[function.__name__] += call.me == 0
        found = function(call)
        if function in REDUCTIONS and call.exact:
            done["as gloo"] += call.me == 0
            call.group, call.stride = gloo, 1  # gloo's are wrong with strides
            for ours, theirs in zip(found, function(call), strict=True):
                assert torch.equal(ours, theirs), (function.__name__, call)
    return done
