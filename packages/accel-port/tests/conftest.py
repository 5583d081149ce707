# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A project of one file, the lines that a port changes, and programs to port."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from accel_port.porting import Ported, applied, port

HERE = Path(__file__).parent
#: Programs that use Python, and torch, in odd ways, by what is odd about them.
ODD_PROGRAMS = dict(
    re.findall(r"(?ms)^=== (.*?)\n(.*?)(?=^=== |\Z)", (HERE / "odd_programs.txt").read_text("utf-8"))
)
TARGETS = ("deepspeed", "accel", "torch")


def ported_once(text: str, target: str) -> Ported:
    """Port a program, of which nothing but the found places may change."""
    ported = port(text, target)  # raises Unstable if a second run would change it
    ast.parse(ported.text)
    assert applied(text, ported.edits) == ported.text
    for finding in ported.findings:
        for edit in finding.edits:
            assert finding.start <= edit.start <= edit.end <= finding.end or finding.rule == "imports"
    return ported


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    """Write files below a folder of their own, and return the folder."""
    root = tmp_path / "project"
    root.mkdir()

    def write(**files: str | bytes) -> Path:
        for name, content in files.items():
            path = root / name.replace("__", "/")
            path = path if path.suffix else path.with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    return write


@pytest.fixture
def body() -> Callable[..., str]:
    """Port code below `import torch`, and return it without the imports."""

    def ported(code: str, target: str = "deepspeed") -> str:
        text = port("import torch\n" + code, target).text
        lines = [line for line in text.splitlines() if "import get_accelerator" not in line]
        return "\n".join(lines).removeprefix("import torch\n")

    return ported
