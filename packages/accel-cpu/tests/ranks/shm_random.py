# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Random calls of everything that the process group has, in groups of all ranks and of some, each of them checked.

A large call is checked part by part: whole tensors of all ranks, in float64, would take gigabytes on each of them.
"""

import functools
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTEGERS = (torch.int32, torch.int64, torch.int8, torch.uint8)
OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
#: A prime: what moves by a power of two, or by a slot, cannot look as if it were in its place.
_LENGTH = 262_147
PART = 1 << 17
HOSTS = 1


@functools.cache
def _table(dtype: torch.dtype) -> Tensor:
    """Return _LENGTH random values, twice in a row."""
    generator = torch.Generator().manual_seed(1)
    if dtype in INTEGERS:
        info = torch.iinfo(dtype)
        low, high = max(info.min, -(2**40)), min(info.max, 2**40)
        once = torch.randint(low, high, (_LENGTH,), generator=generator, dtype=torch.int64)
    else:
        once = torch.randn(_LENGTH, generator=generator, dtype=torch.float64)
        once = once > 0 if dtype is torch.bool else once
    return once.to(dtype).repeat(2)


def part(start: int, dtype: torch.dtype, begin: int, count: int) -> Tensor:
    """Return `count` values of the sequence `start` from `begin` on; at most PART."""
    place = (begin + start) % _LENGTH
    return _table(dtype)[place : place + count]


def parts(size: int) -> Iterator[tuple[int, int]]:
    """Yield begin and length of the parts of `size` elements."""
    for begin in range(0, size, PART):
        yield begin, min(PART, size - begin)


def fill(tensor: Tensor, start: int, begin: int = 0) -> Tensor:
    """Fill a tensor of one dimension with the sequence `start` from `begin` on, and return it."""
    for offset, count in parts(tensor.numel()):
        tensor[offset : offset + count] = part(start, tensor.dtype, begin + offset, count)
    return tensor


def check_moved(found: Tensor, start: int, begin: int) -> None:
    """Check that `found` has the sequence `start` from `begin` on."""
    for offset, count in parts(found.numel()):
        wanted = part(start, found.dtype, begin + offset, count)
        assert torch.equal(found[offset : offset + count], wanted), (found.dtype, found.numel(), offset)


def check_reduced(found: Tensor, starts: list[int], begin: int, operation: str) -> None:
    """Check that `found` is the reduction of the sequences from `begin` on."""
    for offset, count in parts(found.numel()):
        given = [part(start, found.dtype, begin + offset, count) for start in starts]
        _check(found[offset : offset + count], given, operation)


def _check(found: Tensor, given: list[Tensor], operation: str) -> None:
    expected = _expected(given, operation)
    if found.dtype in INTEGERS:
        assert torch.equal(found, expected), (operation, found.dtype, found.numel())
        return
    overflow = expected.abs() >= torch.finfo(found.dtype).max
    difference = (found.double() - expected).abs()
    assert bool((overflow | (difference <= _bound(given, operation, expected))).all()), (
        operation, found.dtype, found.numel(), difference.max(),
    )  # fmt: skip


def _expected(given: list[Tensor], operation: str) -> Tensor:
    """Reduce in float64, or in the integer type itself."""
    stacked = torch.stack(given) if given[0].dtype in INTEGERS else torch.stack(given).double()
    if operation == "PRODUCT":
        return stacked.prod(0, dtype=stacked.dtype)
    if operation in ("MIN", "MAX"):
        return stacked.amin(0) if operation == "MIN" else stacked.amax(0)
    total = stacked.sum(0, dtype=stacked.dtype)
    return total / len(given) if operation == "AVG" else total


def _bound(given: list[Tensor], operation: str, expected: Tensor) -> Tensor:
    """Return the largest allowed difference: (n-1) eps sum |x|, and for half types one rounding of each host more."""
    dtype, ranks = given[0].dtype, len(given)
    if operation in ("MIN", "MAX"):
        return torch.zeros_like(expected)
    scale = expected.abs() if operation == "PRODUCT" else torch.stack(given).double().abs().sum(0)
    if operation == "AVG":
        scale = scale / ranks
    half = dtype in (torch.bfloat16, torch.float16)
    # The spacing of numbers is constant below the normal ones.
    bound = (ranks - 1) * torch.finfo(torch.float32 if half else dtype).eps * scale
    bound += torch.finfo(dtype).tiny * torch.finfo(dtype).eps
    # Between hosts, gloo adds up what they have rounded.
    rounded = scale * HOSTS if HOSTS > 1 else expected.abs() / 2
    return bound + rounded * torch.finfo(dtype).eps if half else bound


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
    def op(self) -> Any:
        return getattr(dist.ReduceOp, self.operation)

    def pieces(self, sizes: list[int]) -> list[Tensor]:
        """Return this member's values in tensors of these sizes."""
        begins = itertools.accumulate(sizes, initial=0)
        return [
            fill(self.empty(size), self.start[self.me], begin)
            for size, begin in zip(sizes, begins, strict=False)
        ]

    def reduced(self, found: Tensor, begin: int = 0) -> None:
        """Check that `found` is the reduction of all members' values from `begin` on."""
        check_reduced(found, self.start, begin, self.operation)

    def check(self, parts: Iterable[Tensor], begins: list[int] | None = None) -> None:
        """Check that a part has come from each member, whose values begin there."""
        for start, found, begin in zip(self.start, parts, begins or [0] * self.count, strict=True):
            check_moved(found, start, begin)


def all_reduce(call: Call) -> None:
    tensor = call.mine(call.size)
    call.run(dist.all_reduce, tensor, op=call.op)
    call.reduced(tensor)


def reduce(call: Call) -> None:
    tensor = call.mine(call.size)
    call.run(dist.reduce, tensor, call.ranks[call.root], op=call.op)
    if call.me == call.root:  # undefined in torch on others
        call.reduced(tensor)


def reduce_scatter_tensor(call: Call) -> None:
    output, tensor = call.empty(call.share), call.mine(call.share * call.count)
    call.run(dist.reduce_scatter_tensor, output, tensor, op=call.op)
    call.reduced(output, call.me * call.share)


def reduce_scatter(call: Call) -> None:
    output = call.empty(call.share)
    call.run(dist.reduce_scatter, output, call.pieces([call.share] * call.count), op=call.op)
    call.reduced(output, call.me * call.share)


def broadcast(call: Call) -> None:
    tensor = call.mine(call.size)
    call.run(dist.broadcast, tensor, call.ranks[call.root])
    check_moved(tensor, call.start[call.root], 0)


def all_gather_into_tensor(call: Call) -> None:
    output = call.empty(call.share * call.count)
    call.run(dist.all_gather_into_tensor, output, call.mine(call.share))
    call.check(output.view(call.count, call.share))


def all_gather(call: Call) -> None:
    outputs = [call.empty(call.share) for _ in call.ranks]
    call.run(dist.all_gather, outputs, call.mine(call.share))
    call.check(outputs)


def gather(call: Call) -> None:
    outputs = [call.empty(call.share) for _ in call.ranks] if call.me == call.root else None
    call.run(dist.gather, call.mine(call.share), outputs, call.ranks[call.root])
    if outputs is not None:
        call.check(outputs)


def scatter(call: Call) -> None:
    output = call.empty(call.share)
    given = call.pieces([call.share] * call.count) if call.me == call.root else None
    call.run(dist.scatter, output, given, call.ranks[call.root])
    check_moved(output, call.start[call.root], call.me * call.share)


def all_to_all_single(call: Call) -> None:
    output = call.empty(call.share * call.count)
    call.run(dist.all_to_all_single, output, call.mine(call.share * call.count))
    call.check(output.view(call.count, call.share), [call.me * call.share] * call.count)


def _sent(call: Call) -> list[list[int]]:
    """Return how many elements each member sends to each."""
    choose = random.Random(call.start[0])
    return [[choose.randrange(call.share + 1) for _ in call.ranks] for _ in call.ranks]


def uneven_all_to_all_single(call: Call) -> None:
    sent, me = _sent(call), call.me
    receives = [row[me] for row in sent]
    output = call.empty(sum(receives))
    call.run(dist.all_to_all_single, output, call.mine(sum(sent[me])), receives, sent[me])
    call.check(output.split(receives), [sum(row[:me]) for row in sent])


def all_to_all(call: Call) -> None:
    sent, me = _sent(call), call.me
    outputs = [call.empty(row[me]) for row in sent]
    call.run(dist.all_to_all, outputs, call.pieces(sent[me]))
    call.check(outputs, [sum(row[:me]) for row in sent])


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


def _drawn(choose: random.Random, rank: int, groups: list[Any], largest: int) -> tuple[Any, Call]:
    """Return a function and the call."""
    function: Any = choose.choice(FUNCTIONS)
    ranks, group = choose.choice(groups)
    size = choose.choice(_EDGES) if choose.random() < 0.2 else int(largest ** choose.random())
    operation = choose.choice(OPERATIONS)
    types = FLOATS if operation == "AVG" else FLOATS + INTEGERS
    dtype = choose.choice(_MOVED if function in MOVEMENTS else types)
    # Of large tensors gaps would take most of the memory.
    stride = choose.choice((1, 1, 2, 3)) if size < 4 << 20 else 1 + (choose.random() < 0.3)
    me = ranks.index(rank) if rank in ranks else -1
    start = [choose.randrange(2**30) for _ in ranks]
    root, later = choose.randrange(len(ranks)), choose.random() < 0.2
    return function, Call(group, ranks, me, dtype, operation, size, stride, root, start, later)


def calls(rank: int, ranks: int, seed: int, count: int, largest: int) -> Counter[str]:
    """Make random calls of up to `largest` elements, each checked. Return how often each function was called."""
    choose, done = random.Random(seed), Counter[str]()
    some = [choose.sample(range(ranks), choose.randint(1, ranks)) for _ in range(3)]
    # Ranks of several hosts, each on its own, have gloo's types only.
    members = [list(range(ranks)), *map(sorted, some if HOSTS == 1 else ())]
    groups = [(some, dist.new_group(some, backend="shm")) for some in members]
    for _ in range(count):
        function, call = _drawn(choose, rank, groups, largest)
        if call.me >= 0:
            done[function.__name__] += call.me == 0
            function(call)
    return done
