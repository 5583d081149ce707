# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel io` measures, prints what DeepSpeed accepts, refuses folders that make no sense, and leaves no file."""

import errno
import json
import mmap
import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from accel_core.cli.main import main
from accel_core.errors import InvalidInput
from accel_ops.cli import measurement
from accel_ops.cli.measurement import Rates
from accel_ops.cli.progress import Progress
from accel_ops.io.builder import AsyncIOBuilder
from accel_ops.io.engines import EngineOptions

_SMALL = ("--size", "1M", "--block", "256K", "1M", "--depth", "4", "--repeat", "1")


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A folder that has to be empty afterwards."""
    made = tmp_path / "measured"
    made.mkdir()
    return made


def test_the_options_are_shown_without_an_import_of_torch():
    program = (
        "import atexit, sys; from accel_core.cli.main import main\n"
        "atexit.register(lambda: print('torch' in sys.modules))\n"
        "main(['io', 'bench', '--help'])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "usage: accel io bench" in result.stdout
    assert result.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("engines", [("uring", "threads", "python"), ()], ids=["each", "default"])
def test_bench_has_a_line_for_each_combination_and_the_limits(measured, capsys, engines):
    given = ["io", "bench", str(measured), *_SMALL, *(["--engine", *engines] if engines else [])]
    assert main(given) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]]
    assert names[:2] == ["buffered,", "raw"]
    assert names[2::2] == names[3::2]
    assert names[2::2] == list(engines) or not engines
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["results"]
    assert [row["name"].split()[0] for row in found] == names
    assert {row["block_size"] for row in found if row["queue_depth"]} == {256 << 10, 1 << 20}
    assert all(row["write"] > 0 and row["read"] > 0 for row in found)
    assert os.listdir(measured) == []


@pytest.fixture
def section(
    measured: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """What `tune` prints."""
    monkeypatch.setattr(measurement, "check_on_disk", lambda path: None)  # the tests' folder may be in memory
    monkeypatch.setattr(measurement, "_SIZE", 1 << 20)
    assert main(["io", "tune", str(measured), "--seconds", "0.1"]) == 0
    assert os.listdir(measured) == []
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.upstream
def test_deepspeed_s_parser_accepts_what_tune_prints(section):
    config = pytest.importorskip("deepspeed.runtime.swap_tensor.aio_config")
    parsed = config.get_aio_config(section)
    assert {name: parsed[name] for name in section["aio"]} == section["aio"]
    assert all(type(parsed[name]) is bool for name in ("single_submit", "overlap_events"))


def test_the_op_accepts_what_tune_prints(section):
    handle = AsyncIOBuilder().load().aio_handle(**section["aio"])
    assert handle.get_queue_depth() == section["aio"]["queue_depth"]


def test_the_cheapest_of_equally_fast_options_is_chosen():
    rates = {
        EngineOptions(1 << 20, 128, 4): Rates(3.0, 2.0),
        EngineOptions(1 << 20, 8, 1): Rates(2.0, 1.0),
        EngineOptions(1 << 20, 32, 1): Rates(2.99, 1.99),
    }
    assert measurement.best(rates) == EngineOptions(1 << 20, 32, 1)


@pytest.mark.parametrize("action", ["bench", "tune"])
@pytest.mark.parametrize("kind", ["missing", "a file", "full", "read-only"])
def test_unsuitable_folders_are_refused(measured, action, kind, capsys, monkeypatch):
    path, given = measured, ["--size", "1000000G"] if kind == "full" and action == "bench" else []
    if kind == "missing":
        path = measured / "missing"
    elif kind == "a file":
        path = measured.parent / "file"
        path.touch()
    elif kind == "read-only":
        monkeypatch.setattr(os, "access", lambda *given: False)  # root may write everywhere
    else:
        monkeypatch.setattr(measurement, "_SIZE", 1 << 60)
    assert main(["io", action, str(path), *given]) == 1
    text = capsys.readouterr().err
    assert "ACC-701" in text
    assert "; expected " in text


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, None])
def test_a_file_system_without_unnamed_files_has_one_whose_name_is_removed(measured, monkeypatch, number):
    # What an old kernel answers is EISDIR; other systems than Linux lack the flag.
    opened = os.open
    refused: list[object] = []

    def without(path, flags, *rest, **more):
        if flags & unnamed == unnamed:
            refused.append(path)
            raise OSError(number, os.strerror(number or 0), path)
        return opened(path, flags, *rest, **more)

    unnamed = os.O_TMPFILE
    if number is None:
        monkeypatch.delattr(os, "O_TMPFILE")
    monkeypatch.setattr(os, "open", without)
    with measurement.scratch_file(measured) as fd:
        assert os.listdir(measured) == []
        assert os.pwrite(fd, mmap.mmap(-1, 4096), 0) == 4096  # aligned, as O_DIRECT wants it
        assert os.fstat(fd).st_nlink == 0
    assert refused == ([] if number is None else [measured])
    assert main(["io", "bench", str(measured), *_SMALL]) == 0
    assert os.listdir(measured) == []


def test_tune_refuses_a_file_system_in_memory(measured, monkeypatch):
    memory = Path("/dev/shm")
    if measurement.file_system(memory) != "tmpfs":
        pytest.skip("not run: /dev/shm is no tmpfs")
    monkeypatch.setattr(measurement, "_SIZE", 1 << 20)
    with pytest.raises(InvalidInput, match="tmpfs"):
        measurement.tuned(memory, 1)


@pytest.mark.parametrize(
    ("action", "option", "value"),
    [
        ("bench", "--size", "1000"), ("bench", "--size", "x"), ("bench", "--depth", "0"), ("bench", "--block", "-1M"),
        *(("tune", "--seconds", value) for value in ("0", "nan", "inf", "-1")),
    ],
)  # fmt: skip
def test_wrong_numbers_are_wrong_usage(measured, action, option, value):
    with pytest.raises(SystemExit, match="2"):
        main(["io", action, str(measured), option, value])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_file_is_left_by_a_process_that_is_stopped(measured, number):
    command = [sys.executable, "-m", "accel_core.cli", "io", "bench", str(measured), "--repeat", "10000"]
    heeding = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        process = subprocess.Popen([*command, "--size", "8M"], stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, heeding)
    try:
        until = time.monotonic() + 200
        while not _has_open(process.pid, measured) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(number)
        error = process.communicate(timeout=200)[1]
    finally:
        process.kill()  # one that does not heed the signal would go on for hours
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL), error
    assert os.listdir(measured) == []


@pytest.mark.parametrize("shows", [True, False], ids=["at the next measurement", "at the end"])
def test_an_interrupt_that_python_drops_ends_the_measurement(shows, monkeypatch):
    dropped: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda given: dropped.append(given.exc_type))

    def measure():
        with Progress() as progress:
            freed = Freed()
            kept = weakref.ref(freed, lambda _: signal.raise_signal(signal.SIGINT))
            del freed
            assert kept() is None
            assert dropped == [KeyboardInterrupt]
            if shows:
                progress.show(0.5, "the next")
                pytest.fail("it goes on")

    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            measure()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, former)


class Freed:
    """What a weak reference can be to."""


def _has_open(pid: int, path: Path) -> bool:
    for entry in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            if os.readlink(entry).startswith(str(path)):
                return True
        except OSError:
            continue
    return False
