# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""oneCCL is used only where its bindings work with this torch; every other case is gloo, with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

REGISTER = """
import torch.distributed
torch.distributed.Backend.register_backend("ccl", lambda *a: None, devices=["cpu"])
"""
MINOR = ".".join(torch.__version__.split(".")[:2])
ASK = """
import sys
from accel_cpu import collectives
assert "oneccl_bindings_for_pytorch" not in sys.modules, "imported before it was asked for"
first, second = collectives.choose(), collectives.choose()
assert first is second
print(first.backend, first.reason, sep="\\n")
"""


def chosen(tmp_path: Path, source: str | None, installed_version: str | None = None) -> tuple[str, str]:
    """What a fresh process chooses where the bindings are a module with this source."""
    if source is not None:
        (tmp_path / "oneccl_bindings_for_pytorch.py").write_text(source)
    if installed_version is not None:
        record = tmp_path / f"oneccl_bind_pt-{installed_version}.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: oneccl-bind-pt\nVersion: {installed_version}\n"
        )
    path = os.pathsep.join([str(tmp_path), *(entry for entry in sys.path if entry)])
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    backend, reason = done.stdout.split("\n", 1)
    return backend, reason


def test_bindings_that_register_the_backend_are_used(tmp_path: Path) -> None:
    source = f"__version__ = '{MINOR}.100+cpu'\n{REGISTER}"
    assert chosen(tmp_path, source, f"{MINOR}.100+cpu")[0] == "ccl"


def test_absent_bindings(tmp_path: Path) -> None:
    backend, reason = chosen(tmp_path, None)
    assert backend == "gloo"
    assert "not installed" in reason


@pytest.mark.parametrize(
    "error",
    [
        "ImportError('libccl.so.1: cannot open shared object file')",
        "RuntimeError('no fabric')",
        "OSError('bad library')",
        "AttributeError('os has no attribute exit')",
        "SystemExit(127)",
    ],
)
def test_bindings_that_fail_to_import(tmp_path: Path, error: str) -> None:
    backend, reason = chosen(tmp_path, f"raise {error}\n{REGISTER}")
    assert backend == "gloo"
    assert error.split("(")[0] in reason


def test_bindings_that_register_nothing(tmp_path: Path) -> None:
    backend, reason = chosen(tmp_path, f"__version__ = '{MINOR}.0'")
    assert backend == "gloo"
    assert "registers no backend" in reason


def test_bindings_for_another_torch_are_not_even_imported(tmp_path: Path) -> None:
    backend, reason = chosen(tmp_path, "raise AssertionError('imported')", "1.13.100")
    assert backend == "gloo"
    assert "1.13.100" in reason
    assert torch.__version__ in reason


def test_bindings_whose_own_version_is_for_another_torch(tmp_path: Path) -> None:
    backend, reason = chosen(tmp_path, f"__version__ = '1.13.0'\n{REGISTER}")
    assert backend == "gloo"
    assert "1.13.0" in reason


def test_bindings_with_a_version_nobody_can_read(tmp_path: Path) -> None:
    backend, reason = chosen(tmp_path, f"__version__ = 'nightly'\n{REGISTER}")
    assert backend == "gloo"
    assert "nightly" in reason
