# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The builders of an accelerator: DeepSpeed's names, and those of its package's own op table.

The child process of `accel ops build|test` loads the ops one at a time (`main`).
"""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from accel_core.api import get_accelerator
from accel_core.errors import AccelError, InvalidInput, in_short
from accel_core.op_builder.names import UPSTREAM
from accel_core.processes import serve

SERVED, MISSING, OK, FAILED = "served", "missing", "ok", "failed"


@dataclass(frozen=True)
class Row:
    """One op.

    builder: name of the builder class.
    op:      upstream's name of the op (`fused_adam`); `deepspeed_not_implemented` for a missing one.
    state:   served or missing; ok or failed once it was tried.
    reason:  where the op comes from, or why it is missing or failed.
    seconds: the time that loading took; None if it was not loaded.
    """

    builder: str
    op: str
    state: str
    reason: str
    seconds: float | None = None


def listed(accelerator: Any, names: Sequence[str]) -> list[Row]:
    """Return a row for each builder in `names`, or for all if it is empty. Compiles nothing.

    Raises InvalidInput.
    """
    known = (*UPSTREAM, *sorted(set(getattr(accelerator, "op_table", ())) - set(UPSTREAM)))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise _unknown(unknown, known, accelerator.device_name())
    return [_row(accelerator, name) for name in known if name in names or not names]


def _row(accelerator: Any, name: str) -> Row:
    builder = accelerator.create_op_builder(name)
    served = bool(builder is not None and builder.is_compatible())
    # The builders of DeepSpeed's own accelerators have an error log instead of a reason.
    reason = getattr(builder, "reason", "") or getattr(builder, "error_log", None) or ""
    return Row(name, getattr(builder, "name", ""), SERVED if served else MISSING, reason)


def _unknown(names: Sequence[str], known: Sequence[str], device: str) -> InvalidInput:
    near = dict.fromkeys(match for name in names for match in _near(name, known))
    hint = f"; expected a builder such as {', '.join(near)}" if near else ""
    return InvalidInput(
        f"{device} has no such op builder: {'; '.join(map(repr, names))}{hint}",
        do="choose one that `accel ops list` shows",
    )


def _near(name: str, known: Sequence[str]) -> list[str]:
    """Return builders with a similar name. The name of an op (`cpu_adam`) finds its builder, too."""
    plain = {_plain(candidate): candidate for candidate in known}
    return [plain[match] for match in difflib.get_close_matches(_plain(name), plain, n=3)]


def _plain(name: str) -> str:
    return name.lower().replace("_", "").removesuffix("builder")


def select(*builders: str) -> dict[str, Any]:
    """Select the accelerator; returns its name and the rows of the builders (default: all).

    Returns the error if none can be selected or a builder is unknown.
    """
    try:
        accelerator = get_accelerator()
        rows = listed(accelerator, builders)
        sys.stdout.flush()  # later output belongs to the first op
        return {"device": accelerator.device_name(), "rows": rows}
    except AccelError as error:
        return {"error": error}


def build(name: str, test: bool = False) -> dict[str, Any]:
    """Load the op, and for `test` run it on a small input; returns its row, in which an error is the reason."""
    row = _built(name, test)
    sys.stdout.flush()  # later output belongs to the next op
    return {"row": row}


def _built(name: str, test: bool) -> Row:
    accelerator, began = get_accelerator(), time.perf_counter()
    try:
        builder = accelerator.create_op_builder(name)
        op = builder.load(verbose=False)
        # A vendor's own class may have its own builders.
        getattr(builder, "prepare", lambda: None)()
        seconds = round(time.perf_counter() - began, 3)
        done = "loaded"
        if test:
            from accel_core.op_builder import self_test

            done = self_test.run(builder.name, op, accelerator.device())
    except Exception as error:
        return Row(name, "", FAILED, f"{type(error).__name__}: {in_short(error)}")
    # Read after loading: if the op could not be compiled, it may run in plain torch.
    reason = "; ".join(filter(None, [done, getattr(builder, "reason", "")]))
    return Row(name, "", OK, reason, seconds)


def main() -> None:
    """Handle the requests of `accel ops build|test`, in its child process."""
    serve({"select": select, "build": build, "test": partial(build, test=True)})
