# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives use oneCCL where its bindings work with this torch, or it is named; else shared memory. All say why."""

import json
import os
import sys
from pathlib import Path

import ccl_calls
import pytest
import shm_jobs as jobs
import torch
import torch.distributed as dist

from accel_core import processes
from accel_core.errors import AccelError, InvalidEnvironment
from accel_core.vendor import Bindings
from accel_cpu import CPU_Accelerator
from accel_cpu.backends import register_ccl
from accel_cpu.ccl import communicator, library
from accel_cpu.comm_ops import CCLCommBuilder
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
    done = processes.run(
        [sys.executable, "-c", ASK_EACH, *(str(root / name) for name in CASES)],
        300,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return dict(zip(CASES, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_the_backend_and_the_reason(answers: dict[str, list[str]], name: str) -> None:
    (backend, reason), (*_, wanted, why) = answers[name], CASES[name]
    assert backend == wanted
    assert why in reason
    assert "oneccl_bindings_for_pytorch" in reason


@pytest.mark.parametrize(
    ("variable", "name", "why"),
    [
        ("gloo", "gloo", "ACCEL_CPU_BACKEND=gloo"),
        ("shm", "shm", "ACCEL_CPU_BACKEND=shm"),
        ("", "shm", "oneccl_bindings_for_pytorch is not installed"),
    ],
)
def test_probe_shows_the_backend(cpu, monkeypatch, variable: str, name: str, why: str) -> None:
    monkeypatch.setenv("ACCEL_CPU_BACKEND", variable)
    assert cpu.communication_backend_name() == name
    assert f"collectives: {name} ({why})" in VENDOR.confirm().reason


def test_unknown_backend_is_an_error(cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCEL_CPU_BACKEND", "nccl")
    with pytest.raises(InvalidEnvironment, match=r"(?s)BACKEND='nccl'.*gloo, shm or ccl; .*gives shm"):
        cpu.communication_backend_name()
    # Raised by the probe, it would leave the device to DeepSpeed's own class.
    assert "ACCEL_CPU_BACKEND='nccl'" in VENDOR.confirm().reason


def test_missing_oneccl_points_to_shm(cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "folder", lambda: None)
    monkeypatch.setenv("ACCEL_CPU_BACKEND", "ccl")
    with pytest.raises(OneCCLFailed, match=r"oneccl>=2022.*backend shm"):
        cpu.communication_backend_name()


_NO_BINDINGS = "oneccl_bindings_for_pytorch is not installed"


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that are registered inside, in a list that replaces torch's, which cannot be emptied."""
    found: list[str] = []
    monkeypatch.setattr(dist.Backend, "backend_list", [n for n in dist.Backend.backend_list if n != "ccl"])
    monkeypatch.setattr(dist.Backend, "register_backend", lambda name, function, **_: found.append(name))
    return found


@pytest.mark.parametrize(
    ("folder", "fault", "names"),
    [(Path("oneccl"), _NO_BINDINGS, ["ccl"]), (Path("oneccl"), None, []), (None, _NO_BINDINGS, [])],
    ids=["no bindings", "bindings", "no oneCCL"],
)
def test_ccl_is_registered_unless_bindings_work(monkeypatch, registered, folder, fault, names) -> None:
    monkeypatch.setattr(library, "folder", lambda: folder)
    monkeypatch.setattr(Bindings, "fault", lambda self: fault)
    register_ccl()
    assert registered == names


def test_builder_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "folder", lambda: None)
    monkeypatch.setattr(dist, "is_backend_available", lambda name: False)
    builder = CCLCommBuilder()
    assert builder.is_compatible() is False
    assert "pip install 'oneccl>=" in builder.reason


def test_a_rank_without_oneccl_is_named_on_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "folder", lambda: None)
    library.load.cache_clear()
    store = dist.HashStore()
    store.set("loaded/1", "")
    try:
        with pytest.raises(AccelError, match=r"rank 0: .*oneCCL"):
            communicator.exchange_id(store, 0, 2)
    finally:
        library.load.cache_clear()


def test_the_library_is_found_in_ccl_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libccl.so.2").touch()
    monkeypatch.setattr(library.importlib.metadata, "files", lambda name: [])
    monkeypatch.setenv("CCL_ROOT", str(tmp_path))
    assert library.folder.__wrapped__() == tmp_path / "lib"
    monkeypatch.delenv("CCL_ROOT")
    assert library.folder.__wrapped__() is None


def test_variables_for_oneccls_start_do_not_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "folder", lambda: tmp_path)
    monkeypatch.setenv("CCL_LOG_LEVEL", "info")
    for name in ("CCL_PLUGIN", "CCL_YIELD"):
        monkeypatch.delenv(name, raising=False)
    with library.settings():
        assert library.os.environ["CCL_YIELD"] == "sched_yield", "its thread leaves the CPU to the rank's own"
        assert library.os.environ["CCL_PLUGIN"] == f"{tmp_path}/libccl_legacy_cpu.so"
        assert library.os.environ["CCL_LOG_LEVEL"] == "info", "the user's"
    assert not {"CCL_PLUGIN", "CCL_YIELD"} & set(library.os.environ)


needs_oneccl = pytest.mark.skipif(
    library.folder() is None, reason="not run: oneCCL is not installed (pip install 'accel-cpu[ccl]', 330 MB)"
)


@needs_oneccl
def test_reductions_equal_those_of_torch() -> None:
    assert jobs.values(ccl_calls.reductions, 2, backend="ccl") == [36, 36]


@needs_oneccl
def test_movements_arrive_unchanged_and_gloo_does_the_rest() -> None:
    jobs.values(ccl_calls.movements, 2, backend="ccl")


@needs_oneccl
def test_deepspeeds_backend_uses_the_builder() -> None:
    assert jobs.values(ccl_calls.deepspeeds, 2, backend="ccl") == [[3.0, 2.0, 2.0, 1.5]] * 2


def test_upstreams_functions_reduce_in_their_groups() -> None:
    wanted = [
        [[10.0, 20.0], [10.0, 40.0], mine, [1.0, 2.0], [11.0, 22.0], [10.0, 20.0], mine]
        for mine in ([1.0, 2.0], [10.0, 20.0])
    ]
    assert jobs.values(ccl_calls.upstreams, 2, backend="gloo") == wanted
