# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The page on host kernels names the files, the order of loading and the tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accel_ops import abi

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "packages/accel-ops"
PAGE = (ROOT / "docs/host-kernels.md").read_text(encoding="utf-8")


def listed(folder: str) -> set[str]:
    """The names in the first column of the table that follows the folder's name."""
    table = PAGE.partition(f"In `{folder}`:")[2].split("\n\n")[1]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


@pytest.mark.parametrize("folder", ["src/accel_ops", "csrc"])
def test_the_table_lists_every_file_and_no_other(folder: str) -> None:
    files = {
        path.name + "/" * path.is_dir()
        for path in (PACKAGE / folder).iterdir()
        if not path.name.startswith("__") and path.name != "py.typed"
    }
    assert listed(f"packages/accel-ops/{folder}/") == files


def test_every_module_in_the_diagram_exists() -> None:
    diagram = PAGE.split("```")[1]
    modules = re.findall(r"accel_ops\.(\w+)", diagram.replace("accel_ops.h", ""))
    assert modules
    for module in modules:
        assert any((PACKAGE / "src/accel_ops" / f"{module}{end}").exists() for end in (".py", "/__init__.py"))


def test_every_file_named_in_the_text_exists() -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.(?:py|cpp|h|inc|c|txt))`", PAGE))
    assert len(named) > 20
    files = [*PACKAGE.glob("**/*.*"), *(ROOT / "shared/csrc").glob("**/*.h")]
    missing = [name for name in named if not any(str(file).endswith(f"/{name}") for file in files)]
    assert missing == []


def test_the_tests_in_the_commands_exist() -> None:
    commands = re.findall(r"-m pytest (\S+)(?: -k \"(\w+))?", PAGE)
    assert len(commands) == 3
    for path, name in commands:
        assert (ROOT / path).exists()
        assert f"def {name}(" in (ROOT / path).read_text("utf-8") if name else True


def test_the_lines_of_the_description_are_real() -> None:
    lines = re.findall(r"^(?:field|function) accel_.*$", PAGE, re.MULTILINE)
    assert lines
    assert set(lines) <= set(abi.expected().splitlines())


def test_functions_and_constants_that_the_text_names_exist() -> None:
    sources = "\n".join(
        path.read_text("utf-8") for pattern in ("csrc/*", "src/**/*.py") for path in PACKAGE.glob(pattern)
    )
    named = re.findall(
        r"`(accel_\w+|ACCEL_ABI\w*|[A-Z]+_?[A-Z]+|parallel_for|add_functions|\w+<…>\(\))`", PAGE
    )
    for name in named:
        assert name.partition("<")[0] in sources, name
