# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Core branches on no vendor's name: import-linter sees imports, this sees the names."""

import ast
from collections.abc import Iterator
from pathlib import Path

from accel_core.cascade import CPU_KEY, ENTRIES

CORE = Path(__file__).parents[2] / "packages/accel-core/src/accel_core"
#: Core's one table of vendors, and DeepSpeed's own backends, whose keys are the same.
TABLES = (CORE / "cascade.py", CORE / "upstream/backends.py")
#: "cpu" is torch's name for host memory, too.
KEYS = {entry.key for entry in ENTRIES} - {CPU_KEY}


def vendor_names(source: str) -> Iterator[int]:
    """Lines with a string that is a vendor's key."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in KEYS:
            yield node.lineno


def test_core_names_no_vendor_outside_its_tables() -> None:
    sources = [path for path in CORE.rglob("*.py") if path not in TABLES]
    named = [f"{path.name}:{line}" for path in sources for line in vendor_names(path.read_text("utf-8"))]
    assert len(sources) > 20
    assert named == []
    assert list(vendor_names('if key == "npu":\n    pass')) == [1]
