# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the tests of a package where only its wheel, and those of the packages that it requires, are installed."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import venv
from pathlib import Path

import pytest

from ci import wheels, workspace
from shared.children import inherited, run

ROOT = Path(__file__).resolve().parents[1]


def run_tests(package: str, place: Path, *, tests: str) -> None:
    """Run tests of the package in a new environment in `place`; fail with their output. tox runs all."""
    origin = json.loads(importlib.metadata.distribution(package).read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        pytest.skip(f"{package} is installed from its wheel: so do the tests around this one run")
    packages = workspace.load(ROOT)
    needed = [package, *workspace.needs(packages, package)]
    wheels.build(ROOT, needed, place / "wheels", "--wheel", "--no-isolation")
    python = _environment(place / "environment", set(packages))
    install = ("-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index")
    run(sys.executable, *install, *(place / "wheels").glob("*.whl"), check=True)
    command = (python, "-m", "pytest", "-q", f"packages/{package}/tests/{tests}")
    done = run(*command, cwd=ROOT, env=inherited(), timeout=float("inf"))
    if done.returncode:
        pytest.fail(f"{package} from its wheel:\n{done.stdout[-8000:]}{done.stderr[-2000:]}", pytrace=False)


def _environment(folder: Path, hidden: set[str]) -> Path:
    """Create an environment with links to all that is installed here, but for the hidden distributions."""
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    (site,) = folder.glob("lib/python*/site-packages")
    distributions = [each for each in importlib.metadata.distributions() if each.name in hidden]
    files = [file for each in distributions for file in each.files or ()]
    left_out = {file.name if file.parts[0] == ".." else file.parts[0] for file in files}
    for installed in (Path(path) for path in sys.path if Path(path).name == "site-packages"):
        for entry in installed.iterdir():
            # What a .pth file adds is ours, or of another environment.
            if entry.name not in left_out and entry.suffix != ".pth" and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    return python
