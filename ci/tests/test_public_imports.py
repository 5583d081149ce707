# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Template, toys and tutorial import the public packages of core only; import-linter reads real packages."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ci import api
from ci.tests.repository import ROOT

EXAMPLES = [ROOT / path for path in ("shared/toy_vendors/accel-toy", "shared/toy_vendors/accel-classic",
                                     "examples/privateuse1/accel-acme")]  # fmt: skip


def imports(folder: Path) -> Iterator[tuple[str, str]]:
    """File and module of each import from accel_core."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module == "accel_core":
                names = [f"accel_core.{alias.name}" for alias in node.names]
            else:
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            yield from ((file.name, name) for name in names if name.partition(".")[0] == "accel_core")


@pytest.mark.parametrize("example", [*EXAMPLES, None], ids=lambda path: path.name if path else "the template")
def test_examples_of_vendor_packages_import_public_packages_only(
    example: Path | None, template: Path
) -> None:
    found = list(imports(example or template))
    assert found
    allowed = tuple(f"accel_core.{package}." for package in api.PUBLIC)
    assert [(file, name) for file, name in found if not f"{name}.".startswith(allowed)] == []
