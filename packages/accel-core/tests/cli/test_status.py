# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel doctor` says on a terminal what it is waiting for; what it prints for others stays as it is."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Environment

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """The file without which `import torch` does not end."""
    return tmp_path / "go"


@pytest.fixture
def start(healthy: Environment, go: Path) -> Start:
    """Starts `accel doctor --json` where torch is slow; standard output is a pipe."""
    healthy.module(
        "torch/__init__.py",
        f"""
        import os, time
        while not os.path.exists({str(go)!r}):
            time.sleep(0.02)
        __version__ = "2.13.0"
        """,
    )

    def run(stderr: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(healthy.site), "TERM": "xterm", "COLUMNS": "100"}
        command = [healthy.python, "-m", "accel_core.cli", "doctor", "--json"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, env=environment)

    return run


def test_on_a_terminal_it_says_what_it_waits_for_and_the_report_has_none_of_it(
    start: Start, go: Path
) -> None:
    ours, theirs = pty.openpty()
    with start(theirs) as process:
        os.close(theirs)
        shown = b""
        while b"importing torch" not in shown:
            shown += os.read(ours, 4096)
        go.touch()
        assert process.stdout is not None
        report = json.load(process.stdout)
    os.close(ours)
    assert report["torch"]["version"] == "2.13.0"


def test_without_a_terminal_it_says_nothing_more(start: Start, go: Path) -> None:
    go.touch()
    with start(subprocess.PIPE) as process:
        report, errors = process.communicate()
    assert errors == b""
    assert json.loads(report)["torch"]["version"] == "2.13.0"
