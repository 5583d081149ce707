# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Does an installed package work beside stock DeepSpeed?

    python -m ci.smoke accel-cpu [--require-device]

Asks the environment of the Python that runs it: a fresh one, with the package's wheel and DeepSpeed, as a user has it.
What a machine without the device cannot show is printed as "not verified"; --require-device makes that a failure.
Why: the other environments of tox hold what tests need; a user's has a wheel and DeepSpeed, in either order.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from ci.problem import Problem, report

#: A hung import must not hold a pipeline for hours.
HANG_SECONDS = 900
_ACCELERATOR = """
import json, accel_core, deepspeed.accelerator
found = deepspeed.accelerator.get_accelerator()
cls = type(found)
print(json.dumps([f"{cls.__module__}.{cls.__qualname__}", found is accel_core.get_accelerator()]))
"""
_LIBRARY = """
import json
from accel_ops import library
print(json.dumps([library.load().reason, library.WHEEL]))
"""


def check(package: str, require_device: bool) -> Iterator[Problem]:
    """Every thing that does not work; print what was verified, and what could not be."""
    module = package.replace("-", "_")
    yield from _try("-m", "pip", "check")
    yield from _try("-c", f"import {module}")
    points = importlib.metadata.distribution(package).entry_points.select(group="accel.vendors")
    if importlib.util.find_spec("accel_core") is None:
        if points or require_device:
            yield Problem(
                what=f"{package} has an accelerator, and accel-core is not installed",
                found="no accel_core in this environment",
                expected="accel-core among what the package requires",
                do="correct the package's dependencies",
            )
        return  # it stands on none of ours
    keys = sorted({str(point.load().key) for point in points})
    candidates = _ask("-m", "accel_core.cli", "doctor", "--json")["candidates"]
    for key in keys:
        own = [each for each in candidates if (each["key"], each["package"]) == (key, package)]
        yield from _check_key(package, key, own, require_device)
    if not keys:
        yield from _check_accelerator(package, "", "")
    if importlib.util.find_spec("accel_ops"):
        yield from _check_library()


def _check_key(package: str, key: str, own: list[dict[str, Any]], require_device: bool) -> Iterator[Problem]:
    broken = [each["reason"] for each in own if each["state"] == "broken"]
    if broken or not own:
        yield Problem(
            what=f"accel doctor does not offer {key} of {package}",
            found=broken[0] if broken else f"no candidate {key} of that package",
            expected=f"a candidate {key} that is present, chosen, outranked or absent",
            do="run accel doctor in this environment",
        )
    elif any(each["runtime"] for each in own):
        yield from _check_accelerator(package, key, f"{package.replace('-', '_')}.")
    else:
        note = f"DS_ACCELERATOR={key} gives the accelerator of {package}"
        print(f"not verified on this machine: {note}: {own[0]['reason']}")
        if require_device:
            yield Problem(
                what=f"not verified: {note}",
                found=own[0]["reason"],
                expected="its runtime, as --require-device asks",
                do="run this on a machine with the device, or without --require-device",
            )


def _check_accelerator(package: str, key: str, origin: str) -> Iterator[Problem]:
    """With a key: the package's own accelerator; without: whatever is detected, but one object behind both."""
    name, same = _ask("-c", _ACCELERATOR, **({"DS_ACCELERATOR": key} if key else {}))
    if same and name.startswith(origin):
        print(f"verified: {key or 'detection'} gives {name}, to DeepSpeed and accel_core alike")
        return
    yield Problem(
        what=f"DeepSpeed does not use the accelerator that {package} gives",
        found=f"{name}, {'the same' if same else 'not the same'} object as accel_core's",
        expected=f"a class of {origin or 'any package'}, one object behind both",
        do="see whether accel_core's entry point in torch.backends is installed (accel doctor)",
    )


def _check_library() -> Iterator[Problem]:
    """The library of the wheel has to load: a build here would hide one that cannot."""
    reason, wheel = _ask("-c", _LIBRARY)
    if reason == wheel:
        print("verified: the host kernels are the library of the wheel")
        return
    yield Problem(
        what="the host kernels are not the library of the wheel",
        found=reason,
        expected="a wheel of this platform with a library that loads here",
        do="see what the build of the wheel warned of",
    )


def _ask(*arguments: str, **variables: str) -> Any:
    """The JSON that this Python prints. Raises Problem with the end of its output when it prints none."""
    done = _python(*arguments, **variables)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise _failed(arguments, done) from None


def _try(*arguments: str) -> Iterator[Problem]:
    done = _python(*arguments)
    if done.returncode:
        yield _failed(arguments, done)
    else:
        print(f"verified: python {' '.join(arguments)}")


def _python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run this Python in a folder of its own, without the variables that steer selection or imports."""
    own = {"DS_ACCELERATOR", "PYTHONPATH", "PYTHONHOME"}
    kept = {k: v for k, v in os.environ.items() if k not in own and not k.startswith("ACCEL_")}
    with tempfile.TemporaryDirectory(prefix="accel-smoke-") as folder:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=folder, env=kept | variables, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=HANG_SECONDS,
        )  # fmt: skip


def _failed(arguments: Sequence[str], done: subprocess.CompletedProcess[str]) -> Problem:
    last = "\n            ".join((done.stdout + done.stderr).strip().splitlines()[-15:])
    return Problem(
        what=f"python {' '.join(arguments).strip()} failed",
        found=f"exit status {done.returncode}: {last or 'no output'}",
        expected="exit status 0 and an answer",
        do="run it in an environment with the same wheels",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ci.smoke", description="Tries an installed package beside DeepSpeed."
    )
    parser.add_argument("package", help="distribution name, as accel-cpu")
    parser.add_argument(
        "--require-device", action="store_true", help="fail where the device's runtime is missing"
    )
    options = parser.parse_args(arguments)
    return report(check(options.package, options.require_device), f"{options.package} works beside DeepSpeed")


if __name__ == "__main__":
    sys.exit(main())
