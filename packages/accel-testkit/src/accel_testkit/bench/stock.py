# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's own ops, which it compiles on the machine of the user."""

from __future__ import annotations

import importlib
import os
from typing import Any

from accel_testkit import stock_builds


def own_op(builder: str, *, build: bool = True) -> tuple[Any, str]:
    """Return DeepSpeed's own op, or None and the reason.

    builder: name of its class in `deepspeed.ops.op_builder.cpu`.
    build:   compile it if that was not done yet; takes a minute or several.
    """
    try:
        os.environ |= stock_builds.environment()  # DeepSpeed's builders stay its own
        made = getattr(importlib.import_module("deepspeed.ops.op_builder.cpu"), builder)()
        with stock_builds.alone():
            if not build and not (stock_builds.folder() / made.name / f"{made.name}.so").exists():
                return None, f"DeepSpeed's {builder} is not compiled; --compile does it"
            return made.load(verbose=False), ""
    except Exception as error:  # a missing header, compiler or library, each with an exception of its own
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return None, f"DeepSpeed's {builder} cannot be compiled here: {lines[-1]}"
