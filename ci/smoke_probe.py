# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The half of ci.smoke that runs inside the fresh environment. Each question prints one line of JSON.

Why: it is run by another Python, which has neither ci/ nor packaging.

python smoke_probe.py vendors DISTRIBUTION MODULE    imports the module and every vendor record it declares
python smoke_probe.py accelerator                    asks DeepSpeed and accel_core for the accelerator
python smoke_probe.py library                        loads the host kernels, where accel-ops is installed
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Callable
from typing import Any


def vendors(distribution: str, module: str) -> dict[str, Any]:
    importlib.import_module(module)
    points = importlib.metadata.distribution(distribution).entry_points
    return {"keys": sorted({point.load().key for point in points if point.group == "accel.vendors"})}


def accelerator() -> dict[str, Any]:
    # Imported here: neither is installed where the rest of ci/ runs.
    deepspeed = importlib.import_module("deepspeed.accelerator")
    core = importlib.import_module("accel_core")
    found = deepspeed.get_accelerator()
    cls = type(found)
    return {"class": f"{cls.__module__}.{cls.__qualname__}", "same": found is core.get_accelerator()}


def library() -> dict[str, Any]:
    if importlib.util.find_spec("accel_ops") is None:
        return {"installed": False}
    host = importlib.import_module("accel_ops.library")
    reason = host.load().reason
    return {"installed": True, "of_the_wheel": reason == host.WHEEL, "reason": reason}


if __name__ == "__main__":
    questions: dict[str, Callable[..., Any]] = {
        "vendors": vendors,
        "accelerator": accelerator,
        "library": library,
    }
    print(json.dumps(questions[sys.argv[1]](*sys.argv[2:])))
