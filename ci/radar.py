# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Try a commit of DeepSpeed with our packages: doctor, parity, quick suite and two engine configurations.

python -m ci.radar CHECKOUT             the newest commit
python -m ci.radar CHECKOUT COMMIT      another one

Why: a commit that breaks us is known while its author remembers it. `git bisect run` finds it in a range.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.version import Version

from ci.parity import DEVICES
from ci.problem import Problem, report
from ci.workspace import git

Failures = dict[str, str]
#: Seconds after which a check is killed.
LIMIT = 1800
#: Devices of the suite and the engine: one of PrivateUse1, one that torch has itself.
VENDORS = ("npu", "xpu")
#: ZeRO 1 with its optimizer on the host, ZeRO 3 with overlapped communication.
_TRAINED = "one_rank and (fp32-stage-1-offload or fp32-stage-3-overlap)"


def export(checkout: Path, commit: str, work: Path) -> Path:
    """Put a commit where Python finds it as an installed distribution; no op is compiled."""
    commit = git(checkout, "rev-parse", "--verify", f"{commit}^{{commit}}").strip()
    folder = work / commit
    folder.mkdir(parents=True, exist_ok=True)
    # `deepspeed` has links to the others.
    command = ["git", "archive", commit, "deepspeed", "accelerator", "op_builder", "csrc"]
    archive = subprocess.run(command, cwd=checkout, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    # On the main branch the file is behind the releases; of an older release, replaced methods would be off.
    versions = git(checkout, "show", f"{commit}:version.txt").strip(), metadata.version("deepspeed")
    version = max(versions, key=Version)
    file = folder / f"deepspeed-{version}.dist-info/METADATA"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"Metadata-Version: 2.1\nName: deepspeed\nVersion: {version}\n", encoding="utf-8")
    return folder


def output(device: str, folder: Path, *command: str) -> str:
    """Return what a Python program prints on that device with the DeepSpeed of a folder."""
    simulated = () if device == "cpu" else (sys.executable, "-m", "accel_core.cli", "sim", device, "--")
    paths = (str(folder.resolve()), str(Path.cwd()), os.environ.get("PYTHONPATH", ""))
    environment = {**os.environ, "DS_ACCELERATOR": device, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    # Stock DeepSpeed compiles by names that all trees share.
    environment["TORCH_EXTENSIONS_DIR"] = str(folder.resolve() / "extensions")
    process = subprocess.Popen(
        [*simulated, sys.executable, *command], env=environment, text=True, errors="replace",
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        return process.communicate(timeout=LIMIT)[0]
    except subprocess.TimeoutExpired:
        return f"killed after {LIMIT} s"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def doctor(device: str, folder: Path) -> Failures:
    """Return what is off: the hooks, or a replaced method whose source has changed."""
    printed = output(device, folder, "-m", "accel_core.cli", "doctor", "--json")
    try:
        found = json.loads(printed[printed.index("{\n") :])
    except ValueError:
        return _no_result(printed)
    parts = [{"name": "bridge", **found["bridge"]}, *found["speedups"]]
    return {part["name"]: part["reason"] for part in parts if not part["on"]}


def parity(device: str, folder: Path) -> Failures:
    """Return the calls that DeepSpeed's class answers in another way than ours, unless that is meant."""
    printed = output("cpu", folder, "-m", "ci.parity", "--accel", device, "--deepspeed", str(folder))
    differs = [line.split(" differs from ", 1) for line in printed.splitlines() if " differs from " in line]
    return dict(differs) if differs or "every difference" in printed else _no_result(printed)


def suite(device: str, folder: Path) -> Failures:
    """Return the failed checks of the quick conformance suite."""
    return _testkit(device, folder, "accel_testkit.suite", "--quick")


def engine(device: str, folder: Path) -> Failures:
    """Return the failed checks of two engine configurations."""
    return _testkit(device, folder, "accel_testkit.engine", "-k", _TRAINED)


CHECKS: Mapping[Callable[[str, Path], Failures], Sequence[str]] = {
    doctor: ("cpu",), parity: DEVICES, suite: VENDORS, engine: VENDORS,
}  # fmt: skip


def _testkit(device: str, folder: Path, package: str, *options: str) -> Failures:
    with tempfile.TemporaryDirectory() as work:
        file = Path(work, "results.json")
        command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", package, "--accel", device)
        printed = output(device, folder, *command, "--results", str(file), *options)
        if not file.exists():
            return _no_result(printed)
        checks = json.loads(file.read_text(encoding="utf-8"))["checks"]
    ran = [each for each in checks if each["outcome"] != "skipped"]
    failed = {each["id"]: each["reason"] for each in ran if each["outcome"] == "failed"}
    return failed if ran else {"no check ran": printed[-300:]}


def _no_result(printed: str) -> Failures:
    return {"no result": (printed.strip().splitlines() or ["no output"])[-1]}


def problems(folder: Path) -> Iterator[Problem]:
    """Yield what fails twice: a busy machine is no news."""
    for check, devices in CHECKS.items():
        for device in devices:
            failures = check(device, folder)
            again = check(device, folder) if failures else {}
            print(f"{check.__name__} on {device}: {len(failures.keys() & again.keys())} failures", flush=True)
            for name in sorted(failures.keys() & again.keys()):
                yield Problem(
                    what=f"{check.__name__} on {device}: {name} fails with DeepSpeed {folder.name[:9]}",
                    found=" ".join(again[name].split())[:600],
                    expected="what the DeepSpeed of our tests does",
                    do="follow DeepSpeed, or file an issue there",
                )


def main(arguments: Sequence[str] | None = None) -> int:
    """Export the commit and try it."""
    parser = argparse.ArgumentParser(prog="python -m ci.radar", description="Try a commit of DeepSpeed.")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("commit", nargs="?", default="HEAD")
    parser.add_argument("--work", type=Path, default=Path("runs/radar"), help="folder of exported commits")
    options = parser.parse_args(arguments)
    try:
        folder = export(options.checkout, options.commit, options.work)
    except Problem as problem:
        return report([problem], "")
    return report(problems(folder), f"nothing fails with DeepSpeed {folder.name[:9]}")


if __name__ == "__main__":
    sys.exit(main())
