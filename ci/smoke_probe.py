# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The half of ci.smoke that runs inside the fresh environment. Each question prints one line of JSON.

python smoke_probe.py vendors DISTRIBUTION MODULE    imports the module and every vendor record it declares
python smoke_probe.py accelerator                    asks DeepSpeed and accel_core for the accelerator
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
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
    kind = type(found)
    return {"class": f"{kind.__module__}.{kind.__qualname__}", "same": found is core.get_accelerator()}


if __name__ == "__main__":
    print(json.dumps(vendors(*sys.argv[2:]) if sys.argv[1] == "vendors" else accelerator()))
