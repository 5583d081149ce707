# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The settings of the tools refuse what they are there to refuse: each is shown a file that breaks its rule."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from ci import workspace
from ci.tests.repository import ROOT, run

CORE, CPU = "packages/accel-core/src/accel_core", "packages/accel-cpu/src/accel_cpu"


@pytest.mark.parametrize(
    ("path", "refused"),
    [(f"{CPU}/probe.py", True), (f"{CORE}/cli/doctor/main.py", False), ("ci/api.py", False)],
)
def test_ruff_refuses_a_print_outside_the_command_line(path: str, refused: bool) -> None:
    command = (sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename", path, "-")
    result = run(*command, input="print(1)\n")
    assert ("T201" in result.stdout) == refused, result.stdout + result.stderr


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all packages' sources, and of the contracts."""
    root = tmp_path_factory.mktemp("sources")
    for package in workspace.load(ROOT).values():
        left_out = shutil.ignore_patterns("*.so", "csrc", "__pycache__")
        shutil.copytree(ROOT / package.source, root / package.source, ignore=left_out)
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def broken(sources: Path, *planted: tuple[str, str]) -> set[str]:
    """The contracts that these files, with a text added, break."""
    before = {path: (sources / path).read_bytes() for path, _ in planted}
    for path, text in planted:
        with (sources / path).open("a", encoding="utf-8") as file:
            file.write(f"\n{text}\n")
    packages = os.pathsep.join(str(path) for path in sources.glob("packages/*/src"))
    environment = {**os.environ, "PYTHONPATH": packages, "NO_COLOR": "1", "COLUMNS": "200"}
    program = "from importlinter.cli import lint_imports_command as c; c()"
    try:
        result = run(sys.executable, "-c", program, "--no-cache", cwd=sources, env=environment)
    finally:
        for path, content in before.items():
            (sources / path).write_bytes(content)
    assert "Contracts: " in result.stdout, result.stdout + result.stderr
    return set(re.findall(r"^(.+) BROKEN\b", result.stdout, re.MULTILINE))


def test_the_contracts_hold_and_each_can_break(sources: Path) -> None:
    assert broken(sources) == set()
    names = broken(
        sources,
        (f"{CPU}/probe.py", "def late():\n    import deepspeed"),
        (f"{CPU}/traits.py", "import accel_cuda.traits"),
        (f"{CPU}/backends.py", "import accel_core.upstream"),
        ("packages/accel-cuda/src/accel_cuda/traits.py", "from accel_cuda import probe"),
        ("packages/accel-cuda/src/accel_cuda/probe.py", "from accel_cuda import traits"),
        (f"{CORE}/errors.py", "import accel_core.cli.main\nimport accel_cpu"),
    )
    assert names >= {
        "Only accel_core.upstream and accel_ops.offload import deepspeed",
        "No folder imports one that imports it",
        "Packages are layered",
    }
