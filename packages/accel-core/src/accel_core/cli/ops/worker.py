# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The child process of `accel ops build|test`: selects the accelerator once, then loads the ops in sequence.

    python -m accel_core.cli.ops.worker --messages FD [--run] [BUILDER …]

It writes each step immediately, as a line of JSON, to the file descriptor. After a crash, the last line names the op.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from typing import Any

from accel_core.cli import child
from accel_core.cli.ops.listing import listed
from accel_core.cli.ops.rows import FAILED, OK, SERVED, Row
from accel_core.errors import AccelError, UnknownBuilder, in_short


def main() -> None:
    """Send `selected` with all rows, `started` and `ended` for each op that is served, and `done`.

    Sends `refused` with the error's text if no accelerator can be selected or a builder is unknown.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("builders", nargs="*")
    args = parser.parse_args()
    os.set_inheritable(args.messages, False)  # a compiler that outlives this process must not keep it open
    try:
        accelerator, rows = _select(args.builders)
        device = accelerator.device_name()
        _send(args.messages, "selected", device=device, rows=[asdict(row) for row in rows])
        for row in rows:
            if row.state == SERVED:
                _send(args.messages, "started", builder=row.builder, printed=_printed())
                _send(args.messages, "ended", row=asdict(_tried(accelerator, row, args.run)))
        _send(args.messages, "done")
    except AccelError as error:
        _send(args.messages, "refused", text=str(error), usage=isinstance(error, UnknownBuilder))
    child.leave()


def _send(descriptor: int, kind: str, **content: Any) -> None:
    data = json.dumps({"kind": kind, **content}).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


def _printed() -> int:
    """Return the number of bytes printed before the next op. stdout and stderr are the same file."""
    sys.stdout.flush()
    return os.fstat(sys.stdout.fileno()).st_size


def _select(builders: list[str]) -> tuple[Any, list[Row]]:
    from accel_core.api import get_accelerator

    accelerator = get_accelerator()
    return accelerator, listed(accelerator, builders)


def _tried(accelerator: Any, row: Row, run: bool) -> Row:
    """Load the op, and run it on a small input if `run`; an error becomes the reason of a failed row."""
    began = time.perf_counter()
    try:
        builder = accelerator.create_op_builder(row.builder)
        op = builder.load(verbose=False)
        seconds = round(time.perf_counter() - began, 3)
        done = "loaded"
        if run:
            from accel_core.op_builder import self_test

            done = self_test.run(builder.name, op, accelerator.device())
    except Exception as error:
        return Row(row.builder, row.op, FAILED, f"{type(error).__name__}: {in_short(error)}")
    # Read after loading: if the op could not be compiled, it may run in plain torch.
    reason = "; ".join(filter(None, [done, getattr(builder, "reason", "")]))
    return Row(row.builder, row.op, OK, reason, seconds)


if __name__ == "__main__":
    main()
