# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Does accel work with this environment's torch and Python? Trains by every launcher, then runs tests and suites.

    python tests/torch_versions/run.py [--record] [PART ...]

All parts take about half an hour on two cores, `launchers` two minutes. --record: write what passed to runs.json, one
row a torch and Python, as `tox run -e torch-newest,torch-floor` does. `python -m ci.feature_matrix write` shows them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import socket
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from subprocess import STDOUT, CompletedProcess, TimeoutExpired
from typing import Any

from packaging.version import Version

from accel_core import processes

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RECORD = HERE / "runs.json"
BIN = Path(sys.executable).parent
PYTEST = (sys.executable, "-m", "pytest", "-q")
NOT_SLOW = (*PYTEST, "-m", "not slow")

#: How each launcher starts the training, and with how many ranks.
LAUNCHERS: dict[str, tuple[int, tuple[str, ...]]] = {
    "accel launch": (2, (str(BIN / "accel"), "launch", "--num_accelerators", "2")),
    "torchrun": (2, (str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2")),
    "deepspeed": (2, (str(BIN / "deepspeed"), "--num_accelerators", "2", "--master_port", "{port}")),
    "python": (1, (sys.executable,)),
}
#: What pytest runs.
TESTS = {
    "Trainer": (*PYTEST, "tests/huggingface/test_trainer.py", "-k", "cpu"),
    "collectives": (
        *NOT_SLOW,
        "packages/accel-cpu/tests/shm",
        "packages/accel-cpu/tests/test_collectives.py",
    ),
    "ops": (*PYTEST, "-m", "not more and not slow", "packages/accel-ops/tests"),
    "engine, cpu": (*PYTEST, "--pyargs", "accel_testkit.engine", "--accel", "cpu", "--quick"),
    "suite, cpu": (*PYTEST, "--pyargs", "accel_testkit.suite", "--accel", "cpu", "--quick"),
    "suite, npu": (
        *(str(BIN / "accel"), "sim", "npu", "--"),
        *(*PYTEST, "--pyargs", "accel_testkit.suite", "--accel", "npu", "--quick"),
    ),
}
PARTS = (*LAUNCHERS, *TESTS)
#: What needs accel-sim, which requires a newer torch than the other packages.
SIMULATED = ("suite, npu",)


def train(name: str) -> list[float]:
    """Return the losses. Raises RuntimeError if the training fails or runs on something else than accel-cpu."""
    ranks, words = LAUNCHERS[name]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "losses.json"
        command = [word.format(port=_free_port()) for word in words]
        # Not the machine's devices: every row is to say the same.
        done = _run(*command, str(HERE / "train.py"), str(out), limit=1200, DS_ACCELERATOR="cpu")
        if done.returncode or not out.is_file():
            raise RuntimeError(f"exit status {done.returncode}\n{done.stdout[-6000:]}")
        report = json.loads(out.read_text(encoding="utf-8"))
    losses: list[float] = report.pop("losses")
    expected = {"accelerator": "accel_cpu", "backend": "shm", "ranks": ranks}
    if report != expected:
        raise RuntimeError(f"found {report}, expected {expected}")
    return losses


def test(name: str) -> str:
    """Return pytest's counts. Raises RuntimeError if a test fails, or none passes or is skipped."""
    done = _run(*TESTS[name], limit=3600)
    counts = re.findall(r"^(?:=+ )?((?:\d+ (?!deselected|warning)\w+(?:, )?)+)", done.stdout, re.MULTILINE)
    if done.returncode or not counts:
        raise RuntimeError(f"exit status {done.returncode}\n{done.stdout[-12000:]}")
    return str(counts[-1]).strip(", ")


def run(parts: list[str]) -> Iterator[tuple[str, str, list[float]]]:
    """Yield each part, its result ("" if it failed), and the losses of a training."""
    for name in parts:
        print(f"{name}: ", end="", flush=True)
        result, losses = "", []
        try:
            if name in LAUNCHERS:
                losses = train(name)
                result = f"{losses[-1]:.5f}"
            else:
                result = test(name)
            print(result)
        except RuntimeError as error:
            print(f"FAILED, {error}")
        yield name, result, losses


def _run(*command: str, limit: int, **variables: str) -> CompletedProcess[str]:
    """Run a command; it ends with its children, exit status 124, after so many seconds."""
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    try:
        return processes.run(command, limit, cwd=ROOT, env={**environment, **variables}, stderr=STDOUT)
    except TimeoutExpired as error:
        return CompletedProcess(command, 124, str(error.output))


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def record(row: dict[str, Any]) -> None:
    """Write the row. It keeps the parts of the earlier row of this torch and Python that were not run now."""
    rows = json.loads(RECORD.read_text(encoding="utf-8"))["rows"] if RECORD.is_file() else []
    by_key = {(each["torch"], each["python"].rpartition(".")[0]): each for each in rows}
    key = (row["torch"], row["python"].rpartition(".")[0])
    row["parts"] = {**by_key.get(key, {}).get("parts", {}), **row["parts"]}
    row["parts"] = {name: row["parts"][name] for name in PARTS if name in row["parts"]}
    by_key[key] = row
    ordered = sorted(by_key.values(), key=lambda each: (Version(each["torch"]), Version(each["python"])))
    RECORD.write_text(json.dumps({"schema": 1, "rows": ordered}, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, "launchers", []], metavar="PART", help=", ".join(PARTS)
    )
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.relative_to(ROOT)}")
    options = parser.parse_args()
    chosen = [name for name in PARTS if not options.parts or name in options.parts
              or ("launchers" in options.parts and name in LAUNCHERS)]  # fmt: skip
    versions = {name: importlib.metadata.version(name) for name in ("torch", "deepspeed")}
    if find_spec("accel_sim") is None:
        chosen = [name for name in chosen if name not in SIMULATED]
        TESTS["ops"] += ("--ignore=packages/accel-ops/tests/test_kernels.py",)
    versions["torch"] = versions["torch"].partition("+")[0]
    versions["python"] = platform.python_version()
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    lost, losses = [], {}
    for name, result, found in run(chosen):
        lost += [] if result else [name]
        losses |= {name: found} if found else {}
        if options.record:
            record({**versions, "date": date.today().isoformat(), "parts": {name: result or "failed"}})
    # One rank sums the rows in another order than two.
    different = [name for name, found in losses.items() if not _alike(found, next(iter(losses.values())))]
    if different:
        print(f"losses differ: {losses}")
    print("failed: " + ", ".join(lost) if lost else "all passed")
    return 1 if lost or different else 0


def _alike(found: list[float], expected: list[float]) -> bool:
    return all(abs(one - other) <= 1e-5 * abs(other) for one, other in zip(found, expected, strict=True))


if __name__ == "__main__":
    sys.exit(main())
