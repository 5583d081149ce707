# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's own ops, compiled on this machine."""

import importlib
import os
from typing import Any

from accel_testkit import stock_builds


def own_op(builder: str) -> tuple[Any, str]:
    """Return DeepSpeed's own op, compiled if that was not done yet, or None and the reason.

    builder: name of its class in `deepspeed.ops.op_builder.cpu`.
    """
    try:
        os.environ |= stock_builds.environment()  # DeepSpeed's builders stay its own
        made = getattr(importlib.import_module("deepspeed.ops.op_builder.cpu"), builder)()
        with stock_builds.alone():
            return made.load(verbose=False), ""
    except Exception as error:  # a missing header, compiler or library, each with its own exception
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return None, f"DeepSpeed's {builder} cannot be compiled here: {lines[-1]}"
