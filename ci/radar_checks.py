# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a DeepSpeed does with our packages: each check is a process group of its own, which is ended if it hangs."""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ci import printed
from ci.parity import DEVICES
from ci.workspace import git

Failures = dict[str, str]
#: Guard against a hang, in seconds.
LIMIT = 1800
_MARK = "radar: "
_CONTRACT = "identity answers environment package pinned_memory op_table"
#: ZeRO 1 with its optimizer on the host, ZeRO 3 with overlapped communication; also beside stock DeepSpeed's CPU.
_TRAINED = "one_rank and (fp32-stage-1-offload or fp32-stage-3-overlap)"


def export(checkout: Path, commit: str, work: Path) -> Path:
    """Put a commit where Python finds it as an installed distribution, and its tests; no op is compiled."""
    folder = work / "trees" / commit
    version = git(checkout, "show", f"{commit}:version.txt").strip()
    metadata = folder / f"deepspeed-{version}.dist-info/METADATA"
    if not metadata.exists():
        for name in git(checkout, "ls-tree", "-d", "--name-only", commit).split():
            if name in ("deepspeed", "accelerator", "op_builder", "csrc", "tests"):
                (folder / name).mkdir(parents=True, exist_ok=True)
                command = ["git", "-C", str(checkout), "archive", f"{commit}:{name}"]
                archive = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
                subprocess.run(["tar", "-x", "-C", folder / name], input=archive, check=True)
        metadata.parent.mkdir(exist_ok=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: deepspeed\nVersion: {version}\n", encoding="utf-8")
    return folder


@functools.cache
def state() -> str:
    """Return a digest of our own sources: outcomes of other ones are not used again."""
    digest = hashlib.sha256()
    checks = Path("ci/radar_checks.py"), Path("ci/parity.py")
    for file in (*sorted(Path().glob("packages/*/src/**/*.[pch]*")), *checks):
        if file.suffix in (".py", ".cpp", ".h"):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def run(check: str, device: str, folder: Path, work: Path) -> Failures:
    """Return what fails twice, with the reason; kept for a later run."""
    kept = work / "outcomes" / state() / f"{folder.name}.{check}.{device}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        found = _once(check, device, folder, kept.with_suffix(".part"))
        if found:
            # A busy machine is no news.
            again = _once(check, device, folder, kept.with_suffix(".again"))
            found = {what: why for what, why in again.items() if what in found}
        kept.write_text(json.dumps(found, indent=1), encoding="utf-8")
    failures: Failures = json.loads(kept.read_text(encoding="utf-8"))
    return failures


def _once(check: str, device: str, folder: Path, part: Path) -> Failures:
    # Of a run that was stopped.
    shutil.rmtree(part) if part.is_dir() else part.unlink(missing_ok=True)
    try:
        return CHECKS[check](device, folder, part)
    except subprocess.TimeoutExpired:
        return {"it hangs": f"it was ended after {LIMIT} s"}


def _output(device: str, folder: Path, *command: str) -> str:
    """Return what a Python program prints with that DeepSpeed on that device."""
    simulated = () if device == "cpu" else (sys.executable, "-m", "accel_core.cli", "sim", device, "--")
    paths = (str(folder.resolve()), str(Path.cwd()), os.environ.get("PYTHONPATH", ""))
    environment = {**os.environ, "DS_ACCELERATOR": device, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    # Stock DeepSpeed compiles by names that all trees share.
    environment["TORCH_EXTENSIONS_DIR"] = str(folder.resolve() / "extensions")
    process = subprocess.Popen(
        [*simulated, sys.executable, *command],
        env=environment,
        text=True,
        errors="replace",
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        return process.communicate(timeout=LIMIT)[0]
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def _last(output: str) -> Failures:
    """Return the failure of a program that has not come to its end."""
    return {"it did not run": (output.strip().splitlines() or ["no output"])[-1][:300]}


def _own(program: str, device: str, folder: Path, _: Path) -> Failures:
    output = _output(device, folder, "-m", "ci.radar_checks", program, device)
    answers = [line.removeprefix(_MARK) for line in output.splitlines() if line.startswith(_MARK)]
    return dict(json.loads(answers[-1])) if answers else _last(output)


def _testkit(package: str, wanted: str, device: str, folder: Path, part: Path) -> Failures:
    answers = part.parent / folder.name
    answers.mkdir(exist_ok=True)
    options = ("--stock-answers", str(answers)) if package == "engine" else ()
    command = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--pyargs",
        f"accel_testkit.{package}",
        "-k",
        wanted,
    )
    output = _output(device, folder, *command, "--accel", device, "--results", str(part), *options)
    if not part.exists():
        return _last(output)
    checks = json.loads(part.read_text(encoding="utf-8"))["checks"]
    return {each["id"]: each["reason"][:600] for each in checks if each["outcome"] == "failed"}


def _parity(device: str, folder: Path, _: Path) -> Failures:
    output = _output("cpu", folder, "-m", "ci.parity", "--accel", device, "--deepspeed", str(folder))
    differs = [line.split(" differs from ", 1) for line in output.splitlines() if " differs from " in line]
    return dict(differs) if differs or "every difference" in output else _last(output)


def _tests(device: str, folder: Path, part: Path) -> Failures:
    """Run DeepSpeed's own unit tests of accelerators, those of the same commit if it has them."""
    part.mkdir(exist_ok=True)
    if (folder / "tests").is_dir():
        (part / "checkout").mkdir(exist_ok=True)
        (part / "checkout/tests").unlink(missing_ok=True)
        (part / "checkout/tests").symlink_to((folder / "tests").resolve())
        (part / "checkout.txt").write_text("the tests of the same commit", encoding="utf-8")
    command = (
        "tests/deepspeed/runner.py",
        "run",
        "--side",
        "ours",
        "--subset",
        "accelerator",
        "--accel",
        device,
    )
    output = _output("cpu", folder, *command, "--work", str(part))
    ran = re.search(rf"^accelerator on {device}, ours: (\d+) / (\d+) / ", output, re.MULTILINE)
    if ran is None or not int(ran[1]) + int(ran[2]):
        return {"no test ran": "".join(_last(output).values())}
    failed = [line.strip().split(": ", 1) for line in output.splitlines() if line.startswith("  ")]
    return {line[0]: line[-1][:300] for line in failed}


CHECKS: Mapping[str, Callable[[str, Path, Path], Failures]] = {
    "bridge": functools.partial(_own, "bridge"),
    "faults": functools.partial(_own, "faults"),
    "parity": _parity,
    "contract": functools.partial(_testkit, "suite", _CONTRACT.replace(" ", " or ")),
    "engine": functools.partial(_testkit, "engine", _TRAINED),
    "tests": _tests,
}


def table(work: Path, trees: Iterable[str]) -> list[str]:
    """Return how many items of each check fail, by DeepSpeed and device; trees: names of what a run has tried."""
    rows: dict[tuple[str, str], dict[str, int]] = {}
    for file in sorted((work / "outcomes" / state()).glob("*.*.*.json")):
        tree, check, device = file.stem.rsplit(".", 2)
        if tree not in trees:
            continue
        rows.setdefault((tree[:9], check), {})[device] = len(json.loads(file.read_text(encoding="utf-8")))
    cells = ([*row, *(str(counts.get(device, "")) for device in DEVICES)] for row, counts in rows.items())
    return printed.table(["DeepSpeed", "check", *DEVICES], cells)


#: Checks of which one device is enough.
ONCE = ("faults",)

# ------------------------------------------------------------------------------------------ in the child


def bridge(device: str) -> Failures:
    """Return what of the bridge does not hold in this process."""
    import deepspeed

    from accel_core import api
    from accel_core.upstream import contract

    for name in ("ops.op_builder", "comm.comm", "runtime.engine", "runtime.zero.stage3", "launcher.runner"):
        importlib.import_module(f"deepspeed.{name}")
    accelerator = deepspeed.accelerator.get_accelerator()
    holds = {
        "the interface is registered": contract.is_registered(),
        f"get_accelerator() is that of accel-{device}": type(accelerator).__module__.startswith(
            f"accel_{device}."
        ),
        "accel_core has the same": accelerator is api.get_accelerator(),
        "DeepSpeed takes it for its own": isinstance(accelerator, deepspeed.accelerator.DeepSpeedAccelerator),
    }
    return {what: f"it is a {type(accelerator).__name__}" for what, held in holds.items() if not held}


def faults(_: str) -> Failures:
    """Return the known faults of DeepSpeed itself that are there: the commit that mends one is news, too."""
    import deepspeed
    import torch

    found = {}
    for stage in (1, 2):
        model = torch.nn.Linear(4, 4)
        model.empty = torch.nn.Parameter(torch.zeros(0))
        config: dict[str, Any] = {"train_batch_size": 1, "zero_optimization": {"stage": stage}}
        config["optimizer"] = {"type": "AdamW", "params": {"torch_adam": True}}
        try:
            engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
            engine.backward(engine(torch.ones(1, 4)).sum() + model.empty.sum())
            engine.step()
        except Exception as error:
            found[f"a parameter without elements at ZeRO {stage}"] = f"{type(error).__name__}: {error}"[:300]
    return found


if __name__ == "__main__":
    try:
        answer = {"bridge": bridge, "faults": faults}[sys.argv[1]](sys.argv[2])
    except Exception as error:
        answer = {"it raises": f"{type(error).__name__}: {error}"[:600]}
    print(_MARK + json.dumps(answer), flush=True)
