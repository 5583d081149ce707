# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A program: `ask.py DOOR OUT` asks one of the two for the accelerator, and writes what it got."""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any


def through_deepspeed() -> Any:
    """As a user's program does."""
    import torch  # noqa: F401, I001
    import deepspeed  # noqa: F401
    from deepspeed.accelerator import get_accelerator

    return get_accelerator()


def through_accel_core() -> Any:
    """Accel_core is asked before anything is imported."""
    import accel_core

    return accel_core.get_accelerator()


def main(door: str, out: str) -> None:
    answer = {"accelerator": "", "error": "", "traceback": ""}
    try:
        cls = type({"deepspeed": through_deepspeed, "accel_core": through_accel_core}[door]())
        answer["accelerator"] = f"{cls.__module__}:{cls.__qualname__}"
    except BaseException as error:
        first = str(error).partition("\n")[0]
        answer.update(error=f"{type(error).__name__}: {first}", traceback=traceback.format_exc())
    Path(out + os.environ.get("RANK", "")).write_text(json.dumps(answer), encoding="utf-8")


main(*sys.argv[1:3])
