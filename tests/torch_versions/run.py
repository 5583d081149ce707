# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Does accel work with this environment's torch and Python? Starts ranks by every launcher, runs tests and suites.

    python tests/torch_versions/run.py [--record] [PART ...]

All parts take about half an hour on two cores. --record: write what passed to runs.json, one row a torch and Python,
as `tox run -e torch-newest,torch-floor` does. `python -m ci.feature_matrix write` shows them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import sys
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

LAUNCHERS = "tests/programs/test_cpu_collectives.py"
#: What pytest runs.
TESTS = {
    "accel launch": (*PYTEST, LAUNCHERS, "-k", "share_memory and launch"),
    "torchrun": (*PYTEST, LAUNCHERS, "-k", "torchrun"),
    "deepspeed": (*PYTEST, LAUNCHERS, "-k", "runner"),
    "python": (*PYTEST, LAUNCHERS, "-k", "without_a_launcher"),
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
PARTS = tuple(TESTS)
#: What needs accel-sim, which requires a newer torch than the other packages.
SIMULATED = ("suite, npu",)


def test(name: str) -> str:
    """Return pytest's counts. Raises RuntimeError if a test fails, or none passes or is skipped."""
    done = _run(*TESTS[name], limit=3600)
    counts = re.findall(r"^(?:=+ )?((?:\d+ (?!deselected|warning)\w+(?:, )?)+)", done.stdout, re.MULTILINE)
    if done.returncode or not counts:
        raise RuntimeError(f"exit status {done.returncode}\n{done.stdout[-12000:]}")
    return str(counts[-1]).strip(", ")


def _run(*command: str, limit: int) -> CompletedProcess[str]:
    """Run a command; it ends with its children, exit status 124, after so many seconds."""
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    try:
        return processes.run(command, limit, cwd=ROOT, env=environment, stderr=STDOUT)
    except TimeoutExpired as error:
        return CompletedProcess(command, 124, str(error.output))


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
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.relative_to(ROOT)}")
    options = parser.parse_args()
    chosen = options.parts or [*PARTS]
    versions = {name: importlib.metadata.version(name) for name in ("torch", "deepspeed")}
    if find_spec("accel_sim") is None:
        chosen = [name for name in chosen if name not in SIMULATED]
        TESTS["ops"] += ("--ignore=packages/accel-ops/tests/test_kernels.py",)
    versions["torch"] = versions["torch"].partition("+")[0]
    versions["python"] = platform.python_version()
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    lost = []
    for name in chosen:
        print(f"{name}: ", end="", flush=True)
        try:
            result = test(name)
            print(result)
        except RuntimeError as error:
            result = "failed"
            lost.append(name)
            print(f"FAILED, {error}")
        if options.record:
            record({**versions, "date": date.today().isoformat(), "parts": {name: result}})
    print("failed: " + ", ".join(lost) if lost else "all passed")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
