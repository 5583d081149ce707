# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's own ops, which it compiles on the machine of the user."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from torch.utils import cpp_extension


def own_op(builder: str, *, build: bool = True, alone: bool = True) -> tuple[Any, str]:
    """Return DeepSpeed's own op, or None and the reason.

    builder: name of its class in `deepspeed.ops.op_builder.cpu`.
    build:   compile it where torch's cache of extensions lacks it; takes a minute or several.
    alone:   no other process loads it now, so that a lock is that of a build that was killed; torch waits for ever.
    """
    # DeepSpeed's builders stay its own, and torch looks for ninja on the path.
    os.environ |= {
        "ACCEL_BRIDGE": "0",
        "DS_ACCELERATOR": "cpu",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    try:
        made = getattr(importlib.import_module("deepspeed.ops.op_builder.cpu"), builder)()
        # Below a folder of this Python and of this torch's CUDA.
        folder = Path(cpp_extension._get_build_directory(made.name, False))
        if alone and (folder / "lock").exists():
            return None, f"DeepSpeed's {builder} waits for a build that was killed: remove {folder / 'lock'}"
        if not build and not (folder / f"{made.name}.so").exists():
            return None, f"DeepSpeed's {builder} is not compiled; --compile does it"
        return made.load(verbose=False), ""
    except Exception as error:  # a missing header, compiler or library, each with an exception of its own
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return None, f"DeepSpeed's {builder} cannot be compiled here: {lines[-1]}"
