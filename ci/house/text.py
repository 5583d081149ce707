# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Length of a source file, in any language.

Why: ruff has no such rule, and pylint's is for Python alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from ci.house.source import Source, Violation

MAX_FILE_LINES = 300
#: Stubs are generated, a file for each module that the vendor has (ci.stubs).
GENERATED = "shared/stubs/"
#: What is the same for all devices stands in core.
MAX_CLASS_LINES = 150


def check(source: Source) -> Iterator[Violation]:
    """The limit that the file breaks, if it does."""
    if not source.is_source or source.path.startswith(GENERATED):
        return
    length = len(source.lines)
    if length > MAX_FILE_LINES:
        yield source.violation(1, f"a file has at most {MAX_FILE_LINES} lines", f"{length} lines")
    elif source.package and PurePosixPath(source.path).name == "accelerator.py" and length > MAX_CLASS_LINES:
        rule = f"a vendor's class file has at most {MAX_CLASS_LINES} lines"
        yield source.violation(1, rule, f"{length} lines")
