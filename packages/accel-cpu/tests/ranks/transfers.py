# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Sends and receives of tensors that are alike, and of others; what the ranks get or raise."""

import time
from typing import Any

import torch
import torch.distributed as dist
from shm_offers import break_memory

_FLOATS = torch.ones(4)
#: What rank 0 sends, and what rank 1 receives into.
PAIRS: dict[str, tuple[torch.Tensor, torch.Tensor]] = {
    "larger": (_FLOATS, torch.full((8,), -1.0)),
    "smaller": (torch.ones(8), torch.full((4,), -1.0)),
    "same bytes": (_FLOATS, torch.full((4,), -1, dtype=torch.int32)),
    "wider": (_FLOATS, torch.full((4,), -1)),
    "narrower": (_FLOATS, torch.zeros(4, dtype=torch.bool)),
    "empty sent": (torch.ones(0), torch.full((4,), -1.0)),
    "empty received": (_FLOATS, torch.ones(0)),
}


def _exchange(how: str, rank: int, pair: tuple[torch.Tensor, torch.Tensor], group: Any) -> None:
    if how == "batch":
        operation = dist.isend if rank == 0 else dist.irecv
        for work in dist.batch_isend_irecv([dist.P2POp(operation, pair[rank], 1 - rank, group)]):
            work.wait()
    elif rank == 0:
        dist.send(pair[0], 1, group) if how != "at once" else dist.isend(pair[0], 1, group).wait()
    elif how == "at once":
        dist.irecv(pair[1], 0, group).wait()
    else:
        dist.recv(pair[1], None if how == "from any" else 0, group)


def differ(rank: int, ranks: int, how: str, problem: str = "") -> dict[str, tuple[str, bool, str, float]]:
    """Return {pair: error, whether the tensor is as it was, error of the next call, seconds}; a group for each."""
    found = {}
    if problem and rank == 1:
        break_memory(problem)
    for name, pair in PAIRS.items():
        group: Any = dist.new_group(backend="shm")
        assert group.reason.endswith(problem)
        before, begin = pair[rank].clone(), time.monotonic()
        errors = []
        for tensors in (pair, (_FLOATS, _FLOATS.clone())):
            try:
                _exchange(how, rank, tensors, group)
            except RuntimeError as error:
                errors.append(f"{type(error).__name__}: {error}")
        found[name] = (errors[0], torch.equal(pair[rank], before), errors[1], time.monotonic() - begin)
    return found


def third(rank: int, ranks: int) -> str:
    """Return what each of three ranks raises: 0 and 1 differ, 2 waits for 1, and all reduce at the end."""
    group = dist.new_group()
    try:
        if rank == 2:
            dist.recv(torch.ones(2), 1, group)
        else:
            _exchange("", rank, PAIRS["larger"], group)
    except RuntimeError as error:
        try:
            dist.all_reduce(torch.ones(1), group=group)
        except RuntimeError as later:
            return f"{type(error).__name__}: {error}\n{type(later).__name__}: {later}"
    return "nothing"


def alike(rank: int, ranks: int) -> list[Any]:
    """Transfers whose tensors agree, however the program orders and waits for them."""
    other, found = 1 - rank, []
    for dtype in (torch.bool, torch.uint8, torch.bfloat16, torch.float64, torch.complex64):
        received = torch.zeros(2, 3, dtype=dtype)
        works = [dist.isend(torch.ones(6, dtype=dtype), other), dist.irecv(received, other)]
        for work in works:
            work.wait()
            assert work.is_completed()
        found.append(
            received.double().sum().item() if dtype != torch.complex64 else received.real.sum().item()
        )
    # Tags decide, not the order; sizes of one tag come in the order of the calls.
    sent = [
        (torch.full((size,), float(size + rank)), tag) for tag in (7, 1 << 20) for size in (1, 500_000, 3)
    ]
    works = [dist.isend(tensor, other, tag=tag) for tensor, tag in sent]
    received = [(torch.empty(size), tag) for tag in (1 << 20, 7) for size in (1, 500_000, 3)]
    for tensor, tag in received:
        dist.recv(tensor, other, tag=tag)
    for work in reversed(works):
        work.wait()
    found += [tensor[-1].item() - other for tensor, _ in received]
    # A receive that nobody waits for yet must not hold up the other rank's send.
    later, scalar = torch.empty(300_000), torch.empty(())
    work = dist.irecv(later, None if rank else other)
    dist.send(torch.full((300_000,), 2.0), other)
    work.wait()
    dist.send(torch.tensor(3.0), other) if rank else dist.recv(scalar, other)
    dist.recv(scalar, other) if rank else dist.send(torch.ones(1), other)
    return [*found, later[-1].item(), scalar.item() == (1.0 if rank else 3.0), work._source_rank() == other]
