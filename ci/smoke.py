# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Does an installed package work with stock DeepSpeed?

    python -m ci.smoke accel-cpu [--require-device]

Checks the environment of the Python that runs it: a fresh one, with the package's wheel and DeepSpeed.
What a machine without the device cannot show is printed as "not verified"; --require-device makes that a failure.
Why: the other environments of tox hold what tests need; a user's has a wheel and DeepSpeed, in either order.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from ci.program import Problem, environment, python, report

_ACCELERATOR = """
import json, accel_core, deepspeed.accelerator
found = deepspeed.accelerator.get_accelerator()
cls = type(found)
print(json.dumps([f"{cls.__module__}.{cls.__qualname__}", found is accel_core.get_accelerator()]))
"""
_LIBRARY = """
import json
from accel_ops.host import library
print(json.dumps([library.load().reason, library.WHEEL]))
"""


def check(package: str, require_device: bool) -> Iterator[Problem]:
    """Yield every thing that does not work; print what was verified, and what could not be."""
    module = package.replace("-", "_")
    _python("-m", "pip", "check")
    _python("-c", f"import {module}")
    points = importlib.metadata.distribution(package).entry_points.select(group="accel.vendors")
    keys = sorted({str(point.load().key) for point in points})
    others = "accel_" if importlib.metadata.entry_points(group="accel.vendors") else "deepspeed."
    if importlib.util.find_spec("accel_core") is None:
        return  # it stands on none of ours
    candidates = json.loads(_python("-m", "accel_core.cli", "doctor", "--json"))["candidates"]
    for key in keys or [""]:
        own = [each for each in candidates if (each["key"], each["package"]) == (key, package)]
        broken = [each["reason"] for each in own if each["state"] == "broken"]
        if key and (broken or not own):
            yield Problem(
                f"accel doctor does not offer {key} of {package}; run it here: {broken or 'no candidate'}"
            )
        elif key and not any(each["runtime"] for each in own):
            what = f"not verified on this machine: DS_ACCELERATOR={key} gives {package}: {own[0]['reason']}"
            print(what)
            if require_device:
                yield Problem(f"{what}; run this on a machine with the device")
        else:
            # Without a key whatever is detected, but one object behind DeepSpeed and accel_core.
            name, same = json.loads(_python("-c", _ACCELERATOR, **({"DS_ACCELERATOR": key} if key else {})))
            print(f"DeepSpeed uses {name}, {'the same' if same else 'not the same'} object as accel_core")
            if not same or not name.startswith(f"{module}." if key else others):
                yield Problem(f"DeepSpeed does not use the accelerator of {package}; run accel doctor")
    if importlib.util.find_spec("accel_ops"):
        reason, wheel = json.loads(_python("-c", _LIBRARY))
        print(f"the CPU kernels are {reason}")
        if reason != wheel:
            # A build here would hide a library of the wheel that does not load.
            yield Problem("the CPU kernels are not the library of the wheel; see what its build warned of")


def _python(*arguments: str, **variables: str) -> str:
    """Run this Python in its own folder, without the variables that steer selection or imports."""
    with tempfile.TemporaryDirectory(prefix="accel-smoke-") as folder:
        # A hung import must not hold a pipeline for hours.
        given: dict[str, Any] = {"cwd": folder, "env": environment(**variables), "timeout": 900}
        return python(*arguments, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **given)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.smoke", description="Tries an installed package.")
    parser.add_argument("package", help="distribution name, as accel-cpu")
    parser.add_argument(
        "--require-device", action="store_true", help="fail where the device's runtime is missing"
    )
    options = parser.parse_args(arguments)
    return report(check(options.package, options.require_device), f"{options.package} works with DeepSpeed")


if __name__ == "__main__":
    sys.exit(main())
