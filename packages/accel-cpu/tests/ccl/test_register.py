# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Who registers the backend `ccl`, and what is said without oneCCL."""

from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from accel_core.errors import AccelError
from accel_core.vendor import Bindings
from accel_cpu.backends import register_ccl
from accel_cpu.ccl import communicator, library
from accel_cpu.comm_ops import CCLCommBuilder


class _Backends:
    """Stands for torch's list of backends, which cannot be emptied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.registered: list[str] = []
        names = [name for name in dist.Backend.backend_list if name != "ccl"]
        monkeypatch.setattr(dist.Backend, "backend_list", names)
        monkeypatch.setattr(dist.Backend, "register_backend", self._register)

    def _register(self, name: str, function: Any, **_: Any) -> None:
        self.registered.append(name)


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> _Backends:
    return _Backends(monkeypatch)


def _install(monkeypatch: pytest.MonkeyPatch, folder: Path | None, fault: str | None) -> None:
    monkeypatch.setattr(library, "folder", lambda: folder)
    monkeypatch.setattr(Bindings, "fault", lambda self: fault)


def test_with_oneccl_and_without_bindings_this_package_registers_ccl(
    monkeypatch: pytest.MonkeyPatch, backends: _Backends, tmp_path: Path
) -> None:
    _install(monkeypatch, tmp_path, "oneccl_bindings_for_pytorch is not installed")
    register_ccl()
    assert backends.registered == ["ccl"]


def test_bindings_that_work_keep_the_name(
    monkeypatch: pytest.MonkeyPatch, backends: _Backends, tmp_path: Path
) -> None:
    _install(monkeypatch, tmp_path, None)
    register_ccl()
    assert backends.registered == []


def test_without_oneccl_nothing_is_registered_and_the_builder_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, backends: _Backends
) -> None:
    _install(monkeypatch, None, "oneccl_bindings_for_pytorch is not installed")
    register_ccl()
    assert backends.registered == []
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
