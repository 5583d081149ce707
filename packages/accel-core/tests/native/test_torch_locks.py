# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Locks left by killed builds of torch extensions are distinguished from locks in use."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accel_core.native import torch_locks
from accel_core.op_builder.source_builder import SourceBuilder

#: torch's FileBaton: the file exists, and its process has it open.
HOLD = "import os, sys; os.open(sys.argv[1], os.O_CREAT | os.O_EXCL); print('held', flush=True); sys.stdin.read()"


@pytest.mark.parametrize("variable", ["TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"])
def test_lock_of_killed_build_is_stale(tmp_path: Path, monkeypatch: Any, variable: str) -> None:
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    of_torch = tmp_path if variable == "TORCH_EXTENSIONS_DIR" else tmp_path / "torch_extensions/py311_cpu"
    lock = of_torch / "cpu_adam/lock"
    lock.parent.mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as build:
        assert build.stdout.readline() == "held\n"
        assert torch_locks.stale() == []
        build.kill()
        build.wait()
    assert torch_locks.stale() == [lock]
    monkeypatch.setattr(torch_locks, "distribution_version", lambda name: "2.14.1")
    assert torch_locks.stale() == []


def test_loading_warns_about_stale_lock(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    pytest.importorskip("torch.utils.cpp_extension")
    theirs = SimpleNamespace(name="toy_op", load=lambda verbose: "loaded")

    class Ours(SourceBuilder):
        NAME = "ToyBuilder"

        def _decision(self) -> tuple[bool, str]:
            return True, ""

        def _upstream_class(self) -> Any:
            return lambda: theirs

    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    (tmp_path / "toy_op").mkdir(mode=0o700)
    assert Ours().load() == "loaded"
    assert not caplog.messages
    (tmp_path / "toy_op/lock").touch()
    assert Ours().load() == "loaded"
    assert "waits for a build that was killed" in caplog.text
