# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Does a package's wheel work beside stock DeepSpeed in an environment that holds nothing else?

    python -m ci.smoke accel-cpu --wheels dist [--deepspeed 0.19.8] [--order deepspeed-first]

Makes a virtual environment in a temporary folder, installs with pip as a user does, and asks it. What a
machine without the device cannot show is printed as "not verified"; --require-device makes that a failure.
Why: tox runs tests, and its environments hold what tests need; a user's has a wheel and DeepSpeed, in either order.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from ci import workspace
from ci.problem import CheckError, Problem, report
from ci.workspace import CORE, Package

ORDERS = ("vendor-first", "deepspeed-first")
PROBE = Path(__file__).with_name("smoke_probe.py")
#: A hung import must not hold a pipeline for hours.
HANG_SECONDS = 900


@dataclass(frozen=True)
class Installed:
    """A fresh environment: its Python, and where its processes run."""

    folder: Path

    def run(self, program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment, our own variables cleared. Never raises for its exit status."""
        binaries = self.folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        command = [str(binaries / program), *arguments]
        environment = clean(os.environ) | variables
        try:
            return subprocess.run(
                command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=HANG_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", f"no end after {HANG_SECONDS} s")

    def ask(self, question: str, *arguments: str, **variables: str) -> Any:
        """The probe's answer. Raises CheckError with the end of its output when it fails."""
        # -I: neither the caller's working folder nor PYTHONPATH may serve an import.
        result = self.run("python", "-I", str(PROBE), question, *arguments, **variables)
        if result.returncode:
            said = " ".join(f"{key}={value}" for key, value in variables.items())
            raise CheckError(_failed(f"{said} {question} {' '.join(arguments)}".strip(), result))
        return json.loads(result.stdout.splitlines()[-1])


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment less what steers selection or imports.

    DeepSpeed's setup.py asks for the accelerator: with DS_ACCELERATOR set, its build fails.
    """
    own = {"DS_ACCELERATOR", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {k: v for k, v in environment.items() if k not in own and not k.startswith("ACCEL_")}


def find_wheels(packages: Mapping[str, Package], name: str, folder: Path, index: bool) -> list[Path]:
    """Wheels of the package and of those it stands on, in the tree's versions.

    With `index`, only its own: pip takes the others from the index, as a user's pip does.
    Raises CheckError that names every missing wheel.
    """
    wanted = {name} if index else {name} | workspace.needs(packages, name)
    there: dict[tuple[str, Version], Path] = {}
    for path in folder.glob("*.whl"):
        try:
            distribution, version, _, _ = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        there[canonicalize_name(distribution), version] = path.resolve()
    missing = [n for n in sorted(wanted) if (n, packages[n].version) not in there]
    if missing:
        raise CheckError(
            Problem(
                what=f"{folder} lacks wheels that {name} needs",
                found=", ".join(sorted(path.name for path in there.values())) or "no wheel",
                expected=", ".join(f"{n} {packages[n].version}" for n in missing),
                do=f"python -m ci.wheels build {' '.join(missing)} --out {folder}",
            )
        )
    return [there[n, packages[n].version] for n in sorted(wanted)]


def deepspeed_requirement(packages: Mapping[str, Package], version: str | None) -> str:
    """What to give pip: a version's requirement, another requirement as it is, or core's own range."""
    if version:
        return f"deepspeed=={version}" if version[0].isdigit() else version
    return next(str(r) for r in packages[CORE].development if canonicalize_name(r.name) == "deepspeed")


def install(folder: Path, steps: Sequence[Sequence[str]], constraints: Path) -> Installed:
    """A fresh environment after these `pip install` steps. Raises CheckError with the end of pip's output."""
    venv.create(folder / "venv", with_pip=True)
    installed = Installed(folder)
    for step in steps:
        print(f"pip install {' '.join(Path(item).name for item in step)}", flush=True)
        result = installed.run(
            "python", "-m", "pip", "install", "-q", "-c", str(constraints.resolve()), *step
        )
        if result.returncode:
            raise CheckError(_failed(f"pip install {' '.join(step)}", result))
    return installed


def check(installed: Installed, package: Package, require_device: bool) -> Iterator[Problem]:
    """Every thing that does not work. Prints what was verified, and what could not be."""
    result = installed.run("python", "-m", "pip", "check")
    if result.returncode:
        yield _failed("pip check", result)
    else:
        print("verified: pip check")
    try:
        keys = installed.ask("vendors", package.name, package.module)["keys"]
        print(f"verified: import {package.module}; it declares {', '.join(keys) or 'no accelerator'}")
        candidates = _doctor(installed)
        for key in keys:
            yield from _check_key(installed, package, key, candidates, require_device)
        if not keys:
            yield from _check_accelerator(installed, package, None)
        yield from _check_library(installed)
    except CheckError as error:
        yield error.problem


def _doctor(installed: Installed) -> list[dict[str, Any]]:
    """The candidates that `accel doctor --json` lists; its exit status is about advice only."""
    result = installed.run("accel", "doctor", "--json")
    try:
        candidates: list[dict[str, Any]] = json.loads(result.stdout)["candidates"]
    except (ValueError, KeyError) as error:
        raise CheckError(_failed("accel doctor --json", result)) from error
    print("verified: accel doctor --json")
    return candidates


def _check_key(
    installed: Installed, package: Package, key: str, candidates: list[dict[str, Any]], require_device: bool
) -> Iterator[Problem]:
    own = [c for c in candidates if c["key"] == key and c["package"] == package.name]
    broken = [c for c in own if c["state"] == "broken"]
    if broken or not own:
        yield Problem(
            what=f"accel doctor does not offer {key} of {package.name}",
            found=broken[0]["reason"] if broken else f"no candidate {key} of that package",
            expected=f"a candidate {key} that is present, chosen, outranked or absent",
            do="run accel doctor in an environment with that wheel",
        )
    elif any(c["runtime"] for c in own):
        yield from _check_accelerator(installed, package, key)
    else:
        note = f"DS_ACCELERATOR={key} gives the accelerator of {package.name}"
        print(f"not verified on this machine: {note}: {own[0]['reason']}")
        if require_device:
            yield Problem(
                what=f"not verified: {note}",
                found=own[0]["reason"],
                expected="its runtime, as --require-device asks",
                do="run this on a machine with the device, or without --require-device",
            )


def _check_accelerator(installed: Installed, package: Package, key: str | None) -> Iterator[Problem]:
    """With a key: the package's own accelerator; without: whatever is detected, but one object behind both."""
    variables, origin = ({"DS_ACCELERATOR": key}, f"{package.module}.") if key else ({}, "")
    answer = installed.ask("accelerator", **variables)
    if answer["same"] and answer["class"].startswith(origin):
        asked = f"DS_ACCELERATOR={key}" if key else "detection"
        print(f"verified: {asked} gives {answer['class']}, to DeepSpeed and accel_core alike")
        return
    yield Problem(
        what=f"DeepSpeed does not use the accelerator that {package.name} gives",
        found=f"{answer['class']}, {'the same' if answer['same'] else 'not the same'} object as accel_core's",
        expected=f"a class of {origin or 'any package'}, one object behind both",
        do="see whether accel_core's entry point in torch.backends is installed (accel doctor)",
    )


def _check_library(installed: Installed) -> Iterator[Problem]:
    """Where accel-ops is among the wheels, its own library has to load: a build here would hide one that cannot."""
    answer = installed.ask("library")
    if not answer["installed"]:
        return
    if answer["of_the_wheel"]:
        print("verified: the host kernels are the library of accel-ops's wheel")
        return
    yield Problem(
        what="the host kernels are not the library of accel-ops's wheel",
        found=answer["reason"],
        expected="a wheel of this platform with a library that loads here",
        do="see what the build of accel-ops's wheel warned of",
    )


def _failed(what: str, result: subprocess.CompletedProcess[str]) -> Problem:
    last = "\n            ".join((result.stdout + result.stderr).strip().splitlines()[-15:])
    return Problem(
        what=f"{what} failed in the fresh environment",
        found=f"exit status {result.returncode}: {last or 'no output'}",
        expected="exit status 0 and an answer",
        do="run it in an environment with the same wheels",
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ci.smoke", description="Tries a package's wheel beside stock DeepSpeed."
    )
    parser.add_argument("package", help="distribution name, as accel-cpu")
    parser.add_argument(
        "--wheels", type=Path, required=True, help="folder with its wheel and those it stands on"
    )
    parser.add_argument(
        "--siblings-from-index", action="store_true", help="take only its own wheel from the folder"
    )
    parser.add_argument(
        "--deepspeed", metavar="VERSION", help="version or requirement (default: what core supports)"
    )
    parser.add_argument("--order", choices=ORDERS, default=ORDERS[0], help="which is installed first")
    parser.add_argument(
        "--constraints", type=Path, default=Path("constraints.txt"), help="default: constraints.txt"
    )
    parser.add_argument(
        "--require-device", action="store_true", help="fail where the device's runtime is missing"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    options = parse(arguments)
    try:
        packages = workspace.load(root or Path.cwd())
        package = workspace.pick(packages, options.package)
        wheels = find_wheels(packages, package.name, options.wheels, options.siblings_from_index)
        steps = [[str(wheel) for wheel in wheels], [deepspeed_requirement(packages, options.deepspeed)]]
        if options.order == "deepspeed-first":
            steps.reverse()
        with tempfile.TemporaryDirectory(prefix="accel-smoke-") as folder:
            installed = install(Path(folder), steps, options.constraints)
            problems = list(check(installed, package, options.require_device))
    except CheckError as error:
        problems = [error.problem]
    return report(problems, f"{options.package}: its wheel works beside DeepSpeed, {options.order}")


if __name__ == "__main__":
    sys.exit(main())
