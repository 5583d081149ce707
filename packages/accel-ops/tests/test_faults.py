# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops work whatever fails on a machine: from another source, and with one warning at most."""

import hashlib
import os
import resource
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from accel_ops.host import library
from accel_ops.optimizers import cpu_steps
from accel_ops.optimizers.host import CPUAdamBuilder
from shared.children import run

#: Program that loads without a library in the wheel, and prints the reason.
_REASON = (
    "from pathlib import Path; from accel_ops.host import library; "
    "library.PREBUILT = Path('none'); print(library.load().reason)"
)


def ours(warned: pytest.WarningsRecorder) -> int:
    """The number of warnings, but for those of files that an earlier test has left to the garbage collector."""
    return sum(warning.category is RuntimeWarning for warning in warned)


def steps() -> bool:
    tensors = [torch.ones(5) for _ in range(4)]
    cpu_steps.adam(*([tensor] for tensor in tensors), step=1, lr=0.1, beta1=0.9, beta2=0.99, eps=0.0)
    return torch.allclose(tensors[0], torch.full((5,), 0.9))


@pytest.mark.parametrize("fault", ["a file in its place", "another user's", "writable by others", "no home"])
@pytest.mark.sample("a file*")
def test_an_unusable_cache_costs_a_build_in_each_process(cache, fault, monkeypatch):
    if fault == "a file in its place":
        cache.write_text("")
    elif fault == "no home":
        for variable in ("ACCEL_CACHE_DIR", "XDG_CACHE_HOME"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setattr(Path, "home", _without_home)
    else:
        cache.mkdir()
        cache.chmod(0o777 if fault == "writable by others" else 0o700)
        if fault == "another user's":
            monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    with pytest.warns(RuntimeWarning, match="Every process does that again") as warned:
        assert library.load() is library.load()
    assert library.load().reason.startswith("compiled for this process; the cache of built libraries can")
    assert ours(warned) == 1
    assert ("home directory" in library.load().reason) == (fault == "no home")
    assert steps()


def _without_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.slow
def test_a_full_disk_leaves_plain_torch_and_the_next_process_builds(cache):
    def limit_file_size():
        # The linker cannot write the library, as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    def child(**options):
        return run(sys.executable, "-W", "ignore", "-c", _REASON, check=True, **options).stdout

    assert child(preexec_fn=limit_file_size).startswith("plain torch: accel_ops does not compile")
    assert child().startswith("compiled on this machine")


@pytest.mark.parametrize(
    ("cxx", "before", "after"),
    [
        ('g++ "x', "plain torch: no C++ compiler can be called", "No closing quotation"),
        ("false", "false, or plain torch if that fails", "plain torch: accel_ops does not compile"),
        ("", "plain torch: no C++ compiler on PATH", "plain torch: "),
    ],
)
def test_unusable_compiler_leaves_plain_torch(cxx, before, after, cache, monkeypatch):
    monkeypatch.setenv("CXX", cxx)
    if not cxx:
        monkeypatch.setenv("PATH", "")
    assert before in library.origin()
    with pytest.warns(RuntimeWarning, match=after):
        assert library.load().functions is None
    assert CPUAdamBuilder().is_compatible()
    assert library.origin() == library.load().reason == CPUAdamBuilder().reason
    assert library.origin().startswith("plain torch: ")


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()], ids=repr)
def test_an_unexpected_error_leaves_plain_torch(cache, monkeypatch, error):
    def fail(thread):
        raise error

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.warns(RuntimeWarning, match=str(error) or type(error).__name__):
        assert library.load().functions is None


@pytest.mark.slow
def test_a_machine_without_a_compiler_uses_a_library_in_the_cache(cache, monkeypatch):
    assert library.load().reason.startswith("compiled on this machine")
    monkeypatch.setattr(library, "_loaded", None)
    monkeypatch.setenv("PATH", "")
    assert library.origin() == "compiled on this machine before"
    assert library.load().reason.startswith("compiled on this machine")


def test_threads_that_load_at_once_load_once_and_warn_once(without_library, monkeypatch):
    calls = []

    def slowly(source):
        calls.append(source)
        time.sleep(0.2)
        raise OSError("no library today")

    monkeypatch.setattr(library.native, "build_library", slowly)
    with pytest.warns(RuntimeWarning, match="no library today") as warned, ThreadPoolExecutor(8) as pool:
        loaded = set(pool.map(lambda _: library.load(), range(8)))
    assert (len(loaded), len(calls), ours(warned)) == (1, 1, 1)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A library of another version."""
    (tmp_path / "other.cpp").write_text('extern "C" int accel_abi_version() { return 1; }')
    run("c++", "-shared", "-fPIC", "-o", tmp_path / "other.so", tmp_path / "other.cpp", check=True)
    return tmp_path / "other.so"


def test_another_library_in_the_wheel_is_replaced_by_a_build_that_says_why(cache, other, monkeypatch):
    monkeypatch.setattr(library, "PREBUILT", other)
    reason = library.load().reason
    assert reason.startswith("compiled on this machine: accel_ops-")
    assert "other.so has the C interface 1" in reason
    assert "it lacks accel_adam," in reason
    assert steps()


def test_another_library_in_the_cache_is_built_again(cache, other):
    right = library.native.build_library(library.source())
    digest = hashlib.sha256(other.read_bytes()).hexdigest()[:32]
    planted = right.with_name(f"{right.stem.rpartition('-')[0]}-{digest}.so")
    right.unlink()
    shutil.copy(other, planted)
    reason = library.load().reason
    assert reason.startswith("compiled on this machine again: ")
    assert "C interface 1" in reason
    assert not planted.exists()
    assert steps()
