# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Run programs in this process, or rank, and print what came of each as JSON: `worker single npu`."""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from datetime import timedelta
from typing import Any

from accel_core import get_accelerator
from benchmarks.programs import Programs

#: Guards against a hang.
_TIMEOUT = timedelta(seconds=120)


def main(kind: str, device: str, *names: str) -> None:
    """Run all programs of a kind, or those named, and print a JSON object: losses or error by program."""
    warnings.simplefilter("ignore")
    programs: Programs = importlib.import_module(f"benchmarks.programs.{kind}").PROGRAMS
    accelerator = get_accelerator()  # imports the vendor's runtime, as the first line of a program does
    if kind == "ranks":
        _join(device, accelerator)
    outcomes = {
        name: _outcome(program, device)
        for name, program in programs.by_name.items()
        if not names or name in names
    }
    if int(os.environ.get("RANK", "0")) == 0:
        sys.stdout.write("\n" + json.dumps({"outcomes": outcomes}) + "\n")


def _join(device: str, accelerator: Any) -> None:
    if device != "cpu":
        accelerator.set_device(int(os.environ["LOCAL_RANK"]))
    import deepspeed

    deepspeed.init_distributed(accelerator.communication_backend_name(), timeout=_TIMEOUT)


def _outcome(program: Any, device: str) -> dict[str, Any]:
    try:
        losses = program(device)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        return {"error": f"{type(error).__name__}: {first}"[:300]}
    return {"losses": losses}


if __name__ == "__main__":
    main(*sys.argv[1:])
