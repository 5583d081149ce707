# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives use oneCCL where its bindings work with this torch, else shared memory; with the reason."""

import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from accel_core.errors import InvalidEnvironment
from accel_cpu import CPU_Accelerator, backends
from accel_cpu.ccl import library
from accel_cpu.errors import OneCCLFailed
from accel_cpu.vendor import VENDOR

MINOR = ".".join(torch.__version__.split(".")[:2])
REGISTER = """
import torch.distributed
torch.distributed.Backend.register_backend("ccl", lambda *args: None, devices=["cpu"])
"""

# One process imports torch once; each case runs in a fork of it, since a registered backend stays.
ASK_EACH = """
import json, os, sys
from accel_cpu import backends
import torch.distributed
for folder in sys.argv[1:]:
    sys.stdout.flush()
    if os.fork():
        assert os.wait()[1] == 0
        continue
    sys.path.insert(0, folder)
    first = backends.choose()
    assert backends.choose() == first
    print(json.dumps(first), flush=True)
    os._exit(0)
"""


# Fake bindings: the module's source, the version of the installed distribution (None for neither), backend and reason.
CASES = {
    "working": (f"__version__ = '{MINOR}.100+cpu'\n{REGISTER}", f"{MINOR}.100+cpu", "ccl", "serves this torch"),
    "working-without-versions": (REGISTER, None, "ccl", "serves this torch"),
    "absent": (None, None, "shm", "not installed"),
    "import-error": ("raise ImportError('libccl.so.1: no such file')", None, "shm", "ImportError: libccl.so.1"),
    "os-error": ("raise OSError('bad library')", None, "shm", "OSError: bad library"),
    "system-exit": ("raise SystemExit(127)", None, "shm", "SystemExit: 127"),
    "fails-after-registering": (f"{REGISTER}\nraise RuntimeError('late')", None, "shm", "late"),
    "registers-nothing": (f"__version__ = '{MINOR}.0'", None, "shm", "registers no backend named ccl"),
    "other-distribution": ("print('imported')", "1.13.100", "shm", "1.13.100 is built for another torch"),
    "other-module": (f"__version__ = '1.13.0'\n{REGISTER}", None, "shm", "1.13.0 is built for another torch"),
    "for-another-device": (REGISTER.replace("cpu", "xpu"), None, "shm", "for xpu, not for cpu"),
    "unreadable-version": (f"__version__ = 'nightly'\n{REGISTER}", None, "shm", "nightly"),
}  # fmt: skip


def install(source: str | None, installed: str | None, folder: Path) -> None:
    folder.mkdir()
    if source is not None:
        (folder / "oneccl_bindings_for_pytorch.py").write_text(source)
    if installed is not None:
        record = folder / f"oneccl_bind_pt-{installed}.dist-info"
        record.mkdir()
        text = f"Metadata-Version: 2.1\nName: oneccl-bind-pt\nVersion: {installed}\n"
        (record / "METADATA").write_text(text)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What a fresh process chooses in each case; nothing but the answers may be printed."""
    root = tmp_path_factory.mktemp("bindings")
    for name, (source, installed, *_) in CASES.items():
        install(source, installed, root / name)
    done = subprocess.run(
        [sys.executable, "-c", ASK_EACH, *(str(root / name) for name in CASES)],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return dict(zip(CASES, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_the_backend_and_the_reason(answers: dict[str, list[str]], name: str) -> None:
    (backend, reason), (*_, wanted, why) = answers[name], CASES[name]
    assert backend == wanted
    assert why in reason
    assert "oneccl_bindings_for_pytorch" in reason


@pytest.mark.parametrize("name", ["gloo", "shm"])
def test_the_variable_chooses_the_backend(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("ACCEL_CPU_BACKEND", name)
    assert cpu.communication_backend_name() == name
    assert f"collectives: {name} (ACCEL_CPU_BACKEND={name})" in VENDOR.confirm().reason


def test_without_the_variable_ranks_share_memory_and_the_probe_says_why(cpu: CPU_Accelerator) -> None:
    assert cpu.communication_backend_name() == "shm"
    assert "collectives: shm (oneccl_bindings_for_pytorch is not installed)" in VENDOR.confirm().reason


def test_another_name_is_an_error_which_the_probe_says_too(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCEL_CPU_BACKEND", "nccl")
    with pytest.raises(
        InvalidEnvironment, match=r"(?s)ACCEL_CPU_BACKEND='nccl'.*gloo, shm or ccl.*do:.*gives shm"
    ):
        cpu.communication_backend_name()
    # Raised by the probe, it would leave the device to DeepSpeed's own class.
    assert "ACCEL_CPU_BACKEND='nccl'" in VENDOR.confirm().reason


def test_oneccl_that_is_asked_for_and_absent_tells_of_shm(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "folder", lambda: None)
    monkeypatch.setenv("ACCEL_CPU_BACKEND", "ccl")
    with pytest.raises(OneCCLFailed, match=r"(?s)do:.*oneccl>=2022.*backend shm"):
        cpu.communication_backend_name()


def test_torch_finds_the_backend_by_its_entry_point() -> None:
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    declared = re.search(r'"torch.distributed.backends"]\nshm = "(.*)"', project)
    assert declared
    assert pkgutil.resolve_name(declared[1]) is backends.register_shm
