# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Rules that read a file as text: length, licence header, name, and nothing of one machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from ci.house.source import Source, Violation

MAX_FILE_LINES = 300
#: What is the same for all devices stands in core.
MAX_CLASS_LINES = 150
HEADER = ("SPDX-FileCopyrightText: accel contributors", "SPDX-License-Identifier: Apache-2.0")
#: Folders that exist on somebody's machine only, and hosts that everybody sets for himself.
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(?:work|root|home|Users|opt)/[\w.-]+")
REGISTRY_HOST = re.compile(r"\b(?:pypi|pythonhosted|npmjs|debian)\.org\b")


def check(source: Source) -> Iterator[Violation]:
    """Every rule of this module that the file breaks."""
    if source.is_source:
        yield from _shape(source)
    for number, line in enumerate(source.lines, 1):
        if match := MACHINE_PATH.search(line):
            yield source.violation(number, "no path of one machine", match[0])
        if match := REGISTRY_HOST.search(line):
            yield source.violation(number, "no registry host", match[0])


def _shape(source: Source) -> Iterator[Violation]:
    if len(source.lines) > MAX_FILE_LINES:
        yield source.violation(1, f"a file has at most {MAX_FILE_LINES} lines", f"{len(source.lines)} lines")
    elif (
        source.package
        and PurePosixPath(source.path).name == "accelerator.py"
        and len(source.lines) > MAX_CLASS_LINES
    ):
        rule = f"a vendor's class file has at most {MAX_CLASS_LINES} lines"
        yield source.violation(1, rule, f"{len(source.lines)} lines")
    shebang = source.text.startswith("#!")
    top = source.lines[shebang : shebang + 2]
    if len(top) < 2 or any(wanted not in line for wanted, line in zip(HEADER, top, strict=True)):
        yield source.violation(1, "two-line SPDX header", f"the file begins {top[:1]!r}")
    if PurePosixPath(source.path).stem == "utils":
        yield source.violation(1, "no file is called utils", "name it for its subject")
