# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The checks there are, with the sentence of each: read from the suite's own files."""

from __future__ import annotations

import ast
from pathlib import Path

SUITE = "packages/accel-testkit/src/accel_testkit/suite"


def load(root: Path) -> dict[str, dict[str, str]]:
    """File -> check -> sentence, in the order of the files."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted((root / SUITE).glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found[path.stem.removeprefix("test_")] = {
            node.name.removeprefix("test_"): " ".join((ast.get_docstring(node) or "").split())
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        }
    return found
