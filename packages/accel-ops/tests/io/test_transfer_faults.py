# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What fails is reported, with errno, file, offset and bytes done; what succeeds is byte-equal."""

import errno
import gc
import os
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_core.errors import InvalidOpArgument
from accel_ops.errors import TransferFailed
from accel_ops.io.engines import EngineOptions
from accel_ops.io.session import Session

_MIB = 1 << 20
#: What a faulty backend may report.
_INJECTED = {errno.EIO, errno.ENOSPC, errno.EINVAL}


@pytest.mark.parametrize(
    ("size", "offset"), [(5001, 0), (100_000, 0), (1000, 4096), (10, 5000), (3 * _MIB, 100)]
)
def test_reading_past_the_end_says_where_the_file_ends(session, tmp_path, size, offset):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5000)
    into = torch.empty(size, dtype=torch.uint8)
    transfer = session.submit(into, path, write=False, offset=offset)
    for read in (transfer.wait, lambda: session.run(into, path, write=False, offset=offset)):
        with pytest.raises(TransferFailed) as caught:
            read()
        error = caught.value
        assert (error.errno, error.filename, error.done) == (errno.ENODATA, str(path), max(0, 5000 - offset))
        assert error.offset == max(5000, offset)
        assert isinstance(error, OSError)
        copy = pickle.loads(pickle.dumps(error))
        assert (vars(copy), copy.errno, copy.filename, str(copy)) == (
            vars(error),
            error.errno,
            str(path),
            str(error),
        )


def test_a_limit_of_the_file_size_is_reported_with_the_bytes_that_fit(run_program, engine):
    program = """
        session = Session(EngineOptions(block_size=65536, depth=4))
        session.submit(torch.zeros(10), path, write=True).wait()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        for call in (session.submit, session.run):
            for size in (4_000_000, 1_000_001):
                try:
                    ended = call(torch.ones(size, dtype=torch.uint8), path, write=True)
                    print("success", ended if isinstance(ended, int) else ended.wait())
                except OSError as error:
                    print(error.errno, error.done <= 1_000_000, error.offset == error.done)
        print(session.submit(torch.ones(1_000_000, dtype=torch.uint8), path, write=True).wait())
    """
    assert run_program(program, engine) == f"{errno.EFBIG} True True\n" * 4 + "1000000\n"


@pytest.mark.parametrize("engine", ["uring", "threads"], indirect=True)
def test_ordinary_memory_is_transferred_where_there_is_no_memory_to_stage_it_in(run_program, engine):
    program = """
        session = Session(EngineOptions(block_size=1 << 20, depth=32))
        session.submit(torch.zeros(10), path, write=True).wait()
        saved, loaded = (torch.full((20_000_001,), each, dtype=torch.uint8)[1:] for each in (7, 0))
        used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize")) << 10
        resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))
        print(session.submit(saved, path, write=True).wait())
        print(session.submit(loaded, path, write=False).wait())
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        print(torch.equal(saved, loaded))
    """
    assert run_program(program, engine) == "20000000\n20000000\nTrue\n"


def test_a_full_file_system_is_reported_and_what_fits_is_written(run_program, engine):
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("not run: mounting a file system needs root and unshare")
    program = """
        import subprocess
        os.mkdir(path)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", path], check=True)
        path += "/file"
        # Of blocks that are written at the same time, the first may be the one without space: then nothing is done.
        for depth, threads, least in ((1, 1, 1), (8, 2, 0), (8, 2, 0)):
            session = Session(EngineOptions(1 << 20, depth, threads))
            try:
                print("success", session.submit(torch.ones(32 << 20, dtype=torch.uint8), path, write=True).wait())
            except OSError as error:
                print(error.errno, least <= error.done <= 8 << 20, error.filename == path)
                with open(path, "rb") as file:
                    assert set(file.read(error.done)) <= {1}
        os.unlink(path)
        print(session.submit(torch.ones(4 << 20, dtype=torch.uint8), path, write=True).wait())
    """
    assert (
        run_program(program, engine, (unshare, "--mount", "--propagation", "private"))
        == f"{errno.ENOSPC} True True\n" * 3 + f"{4 << 20}\n"
    )


def failure(transfer: Any) -> TransferFailed | None:
    """The error with which a transfer ends."""
    try:
        transfer.wait()
    except TransferFailed as error:
        return error
    return None


def inject(engine: str, folder: Path, seed: int, requests: int) -> tuple[int, int]:
    """Transfers of a faulty backend: returns numbers of successes and failures, all of them checked."""
    draw = random.Random(seed)
    options = EngineOptions(
        draw.choice((4096, 16384, 65536)), 4, 2, fault_rate=draw.choice((50, 300)), fault_seed=seed
    )
    session, path = Session(options, engine), folder / "file"
    good = bad = 0
    for _ in range(requests):
        size, offset = draw.randrange(1, 200_000), draw.choice((0, 512, 4096, 777))
        shift = draw.choice((0, 1))
        data = torch.frombuffer(bytearray(draw.randbytes(size + shift)), dtype=torch.uint8)[shift:]
        content = draw.randbytes(size)
        write = draw.random() < 0.5
        path.write_bytes(b"\0" * offset + content)
        transfer = session.submit(data, path, write=write, offset=offset)
        error = failure(transfer)
        done = size if error is None else error.done
        if error is not None:
            assert error.errno in _INJECTED
            assert error.offset == offset + done
        good, bad = good + (error is None), bad + (error is not None)
        theirs = path.read_bytes()[offset : offset + done] if write else content[:done]
        assert data.numpy().tobytes()[:done] == theirs
    session.close()
    return good, bad


@pytest.mark.sample("*-uring")
@pytest.mark.parametrize("engine", ["uring", "threads"])
@pytest.mark.parametrize(
    ("runs", "requests", "least"), [(4, 60, 20), pytest.param(50, 1000, 5000, marks=pytest.mark.slow)]
)
def test_with_a_faulty_backend_every_success_is_byte_equal(tmp_path, engine, runs, requests, least):
    """The slow case meets a hundred thousand faults: about 12 system calls a request, a sixth of them with one."""
    outcomes: list[tuple[int, int]] = []
    # Which requests meet a fault follows from which of two threads is first.
    while len(outcomes) < runs or min(map(sum, zip(*outcomes, strict=True))) <= least:
        outcomes.append(inject(engine, tmp_path, len(outcomes), requests))
        assert len(outcomes) < runs + 36, outcomes


def test_interrupted_system_calls_lose_nothing(run_program, engine):
    program = """
        count = 0
        def handler(number, frame):
            global count
            count += 1
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        session = Session(EngineOptions(block_size=8192, depth=4, workers=2))
        data, into = torch.arange(1_000_000), torch.empty(1_000_000, dtype=torch.int64)
        rounds = 0
        while rounds < 5 or count <= 20:  # on a fast machine few signals come in a round
            rounds += 1
            session.submit(data, path, write=True).wait()
            session.submit(into.zero_(), path, write=False).wait()
            session.run(data[:5000], path, write=True)
            assert torch.equal(into, data)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("all equal")
    """
    assert run_program(program, engine) == "all equal\n"


def test_ctrl_c_ends_a_wait_and_the_transfer_can_be_awaited_again(run_program):
    program = """
        import threading
        from accel_ops.io.builder import AsyncIOBuilder
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
        handle = AsyncIOBuilder().load().aio_handle()
        handle._session.engine.pause(-1)
        handle.async_pwrite(torch.ones(1000), path)
        try:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            handle.wait()
        except KeyboardInterrupt:
            print("interrupted")
        handle._session.engine.resume()
        print(handle.wait(), os.path.getsize(path))
    """
    assert run_program(program) == "interrupted\n1 4000\n"


# --- files, descriptors and tensors that cannot be transferred are refused before anything happens


def descriptors() -> int:
    """The number of open descriptors of this process, without those of what nobody refers to any more."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_files_that_cannot_be_transferred_are_refused_without_leaking(session, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    data = torch.zeros(10_000)
    refused = {
        "pipe": errno.ESPIPE,
        ".": errno.EISDIR,
        "none/file": errno.ENOENT,
        "pipe/file": errno.ENOTDIR,
        "x" * 300: errno.ENAMETOOLONG,
        "/dev/null": errno.ESPIPE,
    }
    session.submit(data, tmp_path / "file", write=True).wait()
    before = descriptors()
    for name, number in refused.items():
        for write in (True, False):
            with pytest.raises(OSError) as caught:
                session.submit(data, tmp_path / name, write=write)
            assert caught.value.errno == number
    with pytest.raises(FileNotFoundError):
        session.submit(data, tmp_path / "none", write=False)
    for offset in (-1, 2**63 - data.nbytes, 2**63, 2**64 + 5):
        for call in (session.submit, session.run):
            with pytest.raises(ValueError, match="file_offset"):
                call(data, tmp_path / "file", write=False, offset=offset)
    assert descriptors() == before


def test_descriptors_stay_the_caller_s_and_must_be_open_for_it(session, tmp_path):
    path, data = tmp_path / "file", torch.arange(20_000)
    into = torch.empty_like(data)
    for flags in (0, os.O_APPEND, os.O_DIRECT, os.O_DIRECT | os.O_APPEND):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
        write = session.submit(data, fd, write=True, offset=40)
        write.wait()
        read = session.submit(into, fd, write=False, offset=40)
        os.close(fd)  # the transfer has its own
        read.wait()
        assert torch.equal(into, data)
        assert path.read_bytes()[40:] == data.numpy().tobytes()
        path.unlink()
    path.touch()
    for flags, write_it in ((os.O_RDONLY, True), (os.O_WRONLY, False)):
        fd = os.open(path, flags)
        with pytest.raises(OSError) as caught:
            session.submit(data, fd, write=write_it)
        assert caught.value.errno == errno.EBADF
        os.close(fd)
        with pytest.raises(OSError) as caught:
            session.submit(data, fd, write=True)
        assert caught.value.errno == errno.EBADF


def test_tensors_without_memory_of_their_own_are_refused(session, tmp_path):
    freed = torch.zeros(1000)
    freed.untyped_storage().resize_(0)
    for tensor in (freed, torch.empty(5, device="meta"), torch.eye(3).to_sparse(), [1.0]):
        for write in (True, False):
            with pytest.raises(InvalidOpArgument):
                session.submit(tensor, tmp_path / "file", write=write)
    with pytest.raises(InvalidOpArgument, match="at one address"):
        session.submit(torch.zeros(1).expand(5), tmp_path / "file", write=False)
    assert not (tmp_path / "file").exists()
