# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Try a commit of DeepSpeed with our packages: doctor, parity, quick suite and two engine configurations.

python -m ci.radar CHECKOUT             the newest commit
python -m ci.radar CHECKOUT COMMIT      another one

Why: a commit that breaks us is known while its author remembers it. `git bisect run` finds it in a range.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from packaging.version import Version

from ci.parity import on_device
from ci.program import Problem, git, report, run

_DOCTOR = """
import json, subprocess, sys
found = json.loads(subprocess.check_output([sys.executable, "-m", "accel_core.cli", "doctor", "--json"]))
off = [part for part in (found["bridge"], *found["speedups"]) if not part["on"]]
sys.exit(f"off: {off}" if off else print("all parts are on"))
"""
_TESTS = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs")
#: ZeRO 1 with its optimizer on the host, ZeRO 3 with overlapped communication.
_TRAINED = "one_rank and (fp32-stage-1-offload or fp32-stage-3-overlap)"


#: Program, device, what it prints if it passes, its words; `{folder}` is that of DeepSpeed.
CHECKS = [
    ("doctor", "cpu", "all parts are on", ("-c", _DOCTOR)),
    ("parity", "cpu", "every difference", ("-m", "ci.parity", "--deepspeed", "{folder}")),
    *(
        (package, vendor, " passed", (*_TESTS, f"accel_testkit.{package}", "--accel", vendor, *options))
        for package, options in (("suite", ("--quick",)), ("engine", ("-k", _TRAINED)))
        # One device of PrivateUse1, and one that torch has itself.
        for vendor in ("npu", "xpu")
    ),
]


def export(checkout: Path, commit: str, work: Path) -> Path:
    """Put a commit where Python finds it as an installed distribution; no op is compiled."""
    commit = git(checkout, "rev-parse", "--verify", f"{commit}^{{commit}}")
    folder = (work / commit).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # `deepspeed` has links to the others.
    archive = f"git archive {commit} deepspeed accelerator op_builder csrc | tar -x -C {folder}"
    run("bash", "-o", "pipefail", "-c", archive, cwd=checkout)
    # On the main branch the file is behind the releases; of an older release, replaced methods would be off.
    version = max(git(checkout, "show", f"{commit}:version.txt"), metadata.version("deepspeed"), key=Version)
    file = folder / f"deepspeed-{version}.dist-info/METADATA"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"Metadata-Version: 2.1\nName: deepspeed\nVersion: {version}\n", encoding="utf-8")
    return folder


def problems(folder: Path) -> Iterator[Problem]:
    """Yield the checks that fail twice: a busy machine makes some fail once."""
    for name, device, expected, words in CHECKS:
        command = [word.replace("{folder}", str(folder)) for word in words]
        for _ in range(2):
            try:
                printed = on_device(device, folder, *command)
            except Problem as problem:
                printed = str(problem)
            else:
                if expected in printed:
                    print(f"{name} on {device} passes", flush=True)
                    break
        else:
            what = f"{name} on {device} fails with DeepSpeed {folder.name[:9]}"
            yield Problem(f"{what}; follow DeepSpeed, or file an issue there\n{printed[-2000:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Export the commit and try it."""
    parser = argparse.ArgumentParser(prog="python -m ci.radar", description="Try a commit of DeepSpeed.")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("commit", nargs="?", default="HEAD")
    parser.add_argument("--work", type=Path, default=Path("runs/radar"), help="folder of exported commits")
    options = parser.parse_args(arguments)
    folder = export(options.checkout, options.commit, options.work)
    return report(problems(folder), f"nothing fails with DeepSpeed {folder.name[:9]}")


if __name__ == "__main__":
    sys.exit(main())
