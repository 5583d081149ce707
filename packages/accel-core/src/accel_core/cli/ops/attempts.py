# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Load ops in a child process. After a crash or a timeout, a new child continues with the remaining ops."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from accel_core.cli.child import Reply
from accel_core.cli.ops.rows import FAILED, SERVED, Row
from accel_core.cli.worker import Worker
from accel_core.errors import AcceleratorBroken

_STEPS = "accel_core.cli.ops.steps"
#: Time limit of the selection, which imports torch and a runtime.
SELECTION_SECONDS = 600.0
#: Interval of `Waiting` events while nothing else happens.
TICK_SECONDS = 1.0


@dataclass(frozen=True)
class Selected:
    """The accelerator is selected: its name, and a row for each op, served or missing."""

    device: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Started:
    """An op is being loaded."""

    builder: str


@dataclass(frozen=True)
class Waiting:
    """The op (empty: the selection) has not finished after `seconds`."""

    builder: str
    seconds: float


@dataclass(frozen=True)
class Tried:
    """An op was loaded (and run, if requested), or failed."""

    row: Row


@dataclass(frozen=True)
class Refused:
    """No op can be tried. `text`: the error. `usage`: a builder that does not exist was named."""

    text: str
    usage: bool


Event = Selected | Started | Waiting | Tried | Refused


def attempts(builders: Sequence[str], action: str, seconds: float) -> Iterator[Event]:
    """Try the builders (default: all) and yield events.

    action:  `build` loads each op, `test` runs it as well.
    seconds: time limit of each op.

    Raises AcceleratorBroken if the selection crashes or exceeds its time limit.
    """
    left: dict[str, Row] | None = None
    while left is None or left:
        with closing(Worker(_STEPS)) as worker:
            worker.send("select", *(builders if left is None else left))
            reply = yield from _reply(worker, "", SELECTION_SECONDS)
            if reply.failure:
                raise _broken(_ending(reply))
            if "refused" in reply.answer:
                yield Refused(reply.answer["refused"], reply.answer["usage"])
                return
            rows = tuple(Row(**row) for row in reply.answer["rows"])
            served = {row.builder: row for row in rows if row.state == SERVED}
            if left is None:
                left = dict(served)
                yield Selected(reply.answer["device"], rows)
            yield from _try(worker, action, seconds, served, left)


def _try(
    worker: Worker, action: str, seconds: float, served: Iterable[str], left: dict[str, Row]
) -> Iterator[Event]:
    """Try the served ops in one child until it ends, and remove them from `left`."""
    for builder in served:
        yield Started(builder)
        worker.send(action, builder)
        reply = yield from _reply(worker, builder, seconds)
        row = Row(builder, "", FAILED, _ending(reply)) if reply.failure else Row(**reply.answer)
        yield Tried(replace(row, op=left.pop(builder).op))
        if reply.failure:
            return
    # An op may be served in one process and missing in the next.
    for row in left.values():
        yield Tried(replace(row, state=FAILED, reason="missing in a second process"))
    left.clear()


def _reply(worker: Worker, builder: str, limit: float) -> Generator[Waiting, None, Reply]:
    began = time.monotonic()
    while not worker.wait(min(TICK_SECONDS, began + limit - time.monotonic())):
        passed = time.monotonic() - began
        if passed >= limit:
            break
        yield Waiting(builder, passed)
    return worker.reply(limit)


def _ending(reply: Reply) -> str:
    return ": ".join(filter(None, [reply.failure, reply.last_line]))


def _broken(found: str) -> AcceleratorBroken:
    return AcceleratorBroken(
        what="the ops cannot be tried: no accelerator can be selected",
        found=found,
        expected="an accelerator that a process of its own can select",
        do="`accel doctor` shows every accelerator and its state",
    )
