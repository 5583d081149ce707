# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Binding, streams and log of a rank; the live view, and files of the launcher."""

import ctypes
import os
import re
import struct
import sys
import tempfile
from pathlib import Path

import pytest

from accel_launch import guard
from accel_launch.errors import InvalidArguments

from .conftest import free_port

POLICY = """
import ctypes
from accel_launch import guard
refused = guard.bind_memory({mode!r}, (0,))
mode, mask = ctypes.c_int(), (ctypes.c_ulong * 32)()
libc = ctypes.CDLL(None, use_errno=True)
failed = libc.syscall({get}, ctypes.byref(mode), mask, ctypes.c_ulong(2048), None, 0)
print(refused or failed or (mode.value, mask[0]))
"""
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236}.get(os.uname().machine)


@pytest.mark.skipif(_GET_MEMPOLICY is None, reason="not run: the number of get_mempolicy is not known here")
@pytest.mark.parametrize(
    ("mode", "policy"), [("bind", "(2, 1)"), ("preferred", "(1, 1)"), ("default", "(0, 0)")]
)
def test_memory_policy_of_kernel(run, mode, policy):
    # In a process of its own, because a policy stays.
    done = run(sys.executable, "-c", POLICY.format(mode=mode, get=_GET_MEMPOLICY))
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("set_mempolicy: Operation not permitted"):
        pytest.skip("not run: this container forbids memory policies")
    assert done.stdout.strip() == policy


def test_mask_of_many_nodes(monkeypatch):
    seen = []

    class Libc:
        def syscall(self, call, mode, mask, size):
            seen.append((mode.value, struct.unpack("2Q", mask), size.value))
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Libc())
    monkeypatch.setattr(guard.platform, "machine", lambda: "x86_64")
    assert guard.bind_memory("bind", (1, 64, 70)) == ""
    assert seen == [(2, (2, 1 | 1 << 6), 129)]
    monkeypatch.undo()
    assert guard.bind_memory("bind", (1000,)).startswith("set_mempolicy: ")


def test_rank_0_reads_input(start):
    reading, writing = os.pipe()
    os.write(writing, b"words\n")
    os.close(writing)
    launch = start("read line || line=none; echo $RANK $line", streams={"stdin": reading})
    os.close(reading)
    assert launch.wait() == 0
    assert sorted(launch.out.splitlines()) == ["0 words", "1 none"]


def test_lines_are_not_mixed(start):
    script = 'for i in 1 2 3 4 5; do printf "$RANK$RANK"; sleep 0.02; printf "$RANK$RANK\\n"; done'
    launch = start(script, ranks=3)
    assert launch.wait() == 0
    assert sorted(launch.out.split()) == sorted(f"{rank}" * 4 for rank in range(3) for _ in range(5))


def test_unfinished_line_is_shown(start):
    launch = start("printf prompt; sleep 300", ranks=1)
    assert os.read(launch.process.stdout.fileno(), 6) == b"prompt"


def test_logs_of_ranks(start, tmp_path):
    logs = tmp_path / "new" / "logs"
    script = "echo out $RANK; echo err $RANK >&2; echo > up$RANK; "
    script += "until [ -e up0 ]; do sleep 0.05; done; exit $((3 * RANK))"
    launch = start(script, options={"enable_each_rank_log": str(logs)})
    assert launch.wait() == 3
    assert launch.out == ""
    assert re.fullmatch(r"accel.* exit code 3; its last lines:\n(    (out|err) 1\n){2}", launch.err)
    for rank in (0, 1):
        (file,) = logs.glob(f"*_rank{rank}.log")
        assert sorted(file.read_text().splitlines()) == [f"err {rank}", f"out {rank}"]


def test_file_with_pid(start):
    launch = start("echo > up$RANK; sleep 300 & wait", ranks=1, options={"save_pid": True})
    launch.file("up0")
    file = Path(tempfile.gettempdir(), f"{launch.process.pid}.deepspeed")
    assert file.read_text() == str(launch.process.pid)
    launch.process.terminate()
    launch.wait()
    assert launch.out == f"launcher pid: {launch.process.pid}\n"
    assert not file.exists()


def test_command_launches_script(run, tmp_path):
    (tmp_path / "queue.py").write_text("raise SystemExit('a file of the user was imported')\n")
    (tmp_path / "script.py").write_text(
        "import os, sys\nprint(*sys.argv[1:], os.environ['LOCAL_SIZE'], len(os.sched_getaffinity(0)))\n"
    )
    options = ("--num_accelerators", "1", "--bind_cores_to_rank")
    done = run(Path(sys.executable).with_name("accel"), "launch", *options, "script.py", "--lr", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"--local_rank=0 --lr 1 1 {len(os.sched_getaffinity(0))}\n"


def test_output_to_nonblocking_pipe(start):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    launch = start(
        "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done", ranks=1, streams={"stdout": writing}
    )
    os.close(writing)
    with os.fdopen(reading) as file:
        assert file.read().splitlines() == [f"line {number}" for number in range(20000)]
    assert launch.wait() == 0, launch.err


def test_log_is_a_new_file(start, tmp_path):
    target = tmp_path / "authorized_keys"
    target.write_text("mine\n")
    (tmp_path / "link.log").symlink_to(target)
    os.mkfifo(tmp_path / "pipe.log")
    for path in (tmp_path / "link.log", tmp_path / "pipe.log", target):
        with pytest.raises(InvalidArguments, match="cannot write the log"):
            guard.open_log(path)
    assert target.read_text() == "mine\n"
    launch = start("touch started", options={"enable_each_rank_log": "/dev/null/logs"})
    assert launch.wait() == 1
    assert "ACC-602" in launch.err
    assert not (tmp_path / "started").exists()


# Standard streams that are closed, or cannot be written: the job runs, and what is lost is said

LAUNCH = f"OMP_NUM_THREADS=1 {sys.executable} -m accel_core.cli launch --num_accelerators 1 --master_port"


@pytest.mark.parametrize("closed", ["", ">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.sample(">&-*")
def test_closed_standard_streams(run, closed, tmp_path):
    (tmp_path / "script.py").write_text(
        "import sys; open('read', 'w').write(sys.stdin.readline()); print('out')"
    )
    done = run("bash", "-c", f"echo hello | {LAUNCH} {free_port()} script.py {closed}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "read").read_text() == "hello\n"
    assert "Traceback" not in done.stderr
    assert closed or done.stdout == "out\n"


def test_unwritable_output_is_a_failure(run, tmp_path):
    (tmp_path / "script.py").write_text("print('out')")
    done = run("bash", "-c", f"{LAUNCH} {free_port()} script.py > /dev/full")
    assert done.returncode == 1
    assert "output cannot be written: No space left on device" in done.stderr


# The live view: one line a rank on a terminal, nothing of it elsewhere


#: A rank with 100 MB of memory.
LIVE = """
import os, time
memory = bytearray(100_000_000)
print(f"[red]word[/red] {os.environ['RANK']}", flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
"""


def test_live_view_on_terminal(start):
    ours, theirs = os.openpty()
    launch = start(
        [sys.executable, "-c", LIVE],
        environment={"TERM": "xterm", "COLUMNS": "120"},
        streams={"stdout": theirs, "stderr": theirs},
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 4096)
        except OSError:  # Linux's answer when the other end is closed
            break
        status = rb"1\s+localhost\s+any\s+-\s+running\s+\d+ %\s+0\.[1-9] GiB\s+\[red\]word\[/red\] 1"
        if b"[red]word[/red] 0" in seen and re.search(status, seen):
            (launch.folder / "go").touch()
    os.close(ours)
    assert launch.process.wait() == 0
    text = seen.decode()
    assert "\x1b[2K" in text.rpartition("running")[2], "the lines are erased at the end"


def test_no_live_view_in_pipe(start):
    launch = start("echo word; sleep 1.5", ranks=1, environment={"TERM": "xterm"})
    assert launch.wait() == 0
    assert (launch.out, launch.err) == ("word\n", "")
