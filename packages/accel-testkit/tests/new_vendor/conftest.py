# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs of this Python, without the variables that choose an accelerator."""

import json
import os
import sys
from pathlib import Path

import pytest

from accel_core import processes
from accel_core.cli.main import main


def attempt(*command: object, cwd: Path | None = None, **environment: str) -> processes.Ended:
    """Run a module as a program: `attempt("pytest", "-q", cwd=folder, NAME="value")`."""
    ours = {k: v for k, v in os.environ.items() if k != "DS_ACCELERATOR" and not k.startswith("ACCEL_S")}
    words = [sys.executable, "-m", *map(str, command)]
    return processes.run(words, 600, cwd=cwd, env={**ours, **environment})


def run(*command: object, cwd: Path | None = None, **environment: str) -> str:
    """Do the same, and return the output; a failure is the test's."""
    done = attempt(*command, cwd=cwd, **environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def pip(command: str, *options: object) -> None:
    """Run pip with what is installed already."""
    run(
        "pip",
        command,
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--disable-pip-version-check",
        *options,
    )


def made(key: str, out: Path, *answers: str) -> Path:
    """Return the package that the command makes."""
    assert main(["new-vendor", key, *answers, "--out", str(out)]) == 0
    return out / f"accel-{key}"


def own_tests(folder: Path, *options: str, **environment: str) -> str:
    """Run the tests of a package."""
    return run("pytest", "-p", "no:cacheprovider", *options, cwd=folder, **environment)


def conformance(folder: Path, *options: str, **environment: str) -> list[dict[str, str]]:
    """Return the checks of a run of the suite on a package, none of which fails."""
    results, key = folder.parent / "results.json", folder.name.removeprefix("accel-")
    suite = ("pytest", "--pyargs", "accel_testkit.suite", "-p", "no:cacheprovider")
    run(*suite, "--accel", key, "--results", results, *options, cwd=folder, **environment)
    checks: list[dict[str, str]] = json.loads(results.read_text(encoding="utf-8"))["checks"]
    return checks


@pytest.fixture
def xyz(tmp_path: Path) -> Path:
    """A package to write in."""
    return made("xyz", tmp_path, "--email", "team@acme.example", "--url", "https://acme.example/accel-xyz")
