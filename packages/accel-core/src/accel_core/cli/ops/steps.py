# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""In the child process of `accel ops build|test`: select the accelerator, and load its ops one at a time."""

from __future__ import annotations

import sys
import time
from typing import Any

from accel_core import api
from accel_core.cli.child import serve
from accel_core.cli.ops.listing import FAILED, OK, Row, listed
from accel_core.errors import AccelError, in_short


def select(*builders: str) -> dict[str, Any]:
    """Select the accelerator; returns its name and the rows of the builders (default: all).

    Returns the error if none can be selected or a builder is unknown.
    """
    try:
        accelerator = api.get_accelerator()
        rows = listed(accelerator, builders)
        sys.stdout.flush()  # later output belongs to the first op
        return {"device": accelerator.device_name(), "rows": rows}
    except AccelError as error:
        return {"error": error}


def build(name: str) -> dict[str, Any]:
    """Load the op; returns its row. An error becomes the reason of a failed row."""
    return _tried(name, run=False)


def test(name: str) -> dict[str, Any]:
    """Load the op and run it on a small input; returns its row."""
    return _tried(name, run=True)


def _tried(name: str, run: bool) -> dict[str, Any]:
    row = _load(api.get_accelerator(), name, run)
    sys.stdout.flush()  # later output belongs to the next op
    return {"row": row}


def _load(accelerator: Any, name: str, run: bool) -> Row:
    began = time.perf_counter()
    try:
        builder = accelerator.create_op_builder(name)
        op = builder.load(verbose=False)
        # A vendor's own class may have builders of its own.
        getattr(builder, "prepare", lambda: None)()
        seconds = round(time.perf_counter() - began, 3)
        done = "loaded"
        if run:
            from accel_core.op_builder import self_test

            done = self_test.run(builder.name, op, accelerator.device())
    except Exception as error:
        return Row(name, "", FAILED, f"{type(error).__name__}: {in_short(error)}")
    # Read after loading: if the op could not be compiled, it may run in plain torch.
    reason = "; ".join(filter(None, [done, getattr(builder, "reason", "")]))
    return Row(name, "", OK, reason, seconds)


if __name__ == "__main__":
    serve({step.__name__: step for step in (select, build, test)})
