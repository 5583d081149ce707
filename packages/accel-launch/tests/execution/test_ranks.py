# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a rank gets: its binding, its input, its log; and what the launcher writes of itself."""

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from accel_launch import guard
from accel_launch.errors import LogUnwritable

POLICY = """
import ctypes
from accel_launch import guard
refused = guard.bind_memory({mode!r}, {nodes!r})
mode, mask = ctypes.c_int(), (ctypes.c_ulong * 32)()
libc = ctypes.CDLL(None, use_errno=True)
failed = libc.syscall({get}, ctypes.byref(mode), mask, ctypes.c_ulong(2048), None, 0)
print(refused or failed or (mode.value, mask[0]))
"""
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236}.get(os.uname().machine)


@pytest.mark.skipif(_GET_MEMPOLICY is None, reason="not run: the number of get_mempolicy is not known here")
@pytest.mark.parametrize(
    ("mode", "nodes", "policy"),
    [("bind", (0,), "(2, 1)"), ("preferred", (0,), "(1, 1)"), ("default", (), "(0, 0)")],
)
def test_the_kernel_has_the_memory_policy_of_the_plan(mode: str, nodes: tuple[int, ...], policy: str) -> None:
    code = POLICY.format(mode=mode, nodes=nodes, get=_GET_MEMPOLICY)
    # In a process of its own, because a policy stays.
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    if found.startswith("set_mempolicy: Operation not permitted"):
        pytest.skip("not run: this container forbids memory policies")
    assert found == policy


def test_a_memory_policy_that_is_refused_is_said_and_does_not_stop_the_rank() -> None:
    assert guard.bind_memory("bind", (1000,)).startswith("set_mempolicy: ")


def test_nodes_beyond_the_first_word_are_in_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Libc:
        def syscall(self, call, mode, mask, size):
            seen.append((mode.value, list(mask), size.value))
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Libc())
    monkeypatch.setattr(guard.platform, "machine", lambda: "x86_64")
    assert guard.bind_memory("bind", (1, 64, 70)) == ""
    assert seen == [(2, [2, 1 | 1 << 6], 129)]


def test_rank_0_reads_the_launcher_s_input(start) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"words\n")
    os.close(writing)
    launch = start("read line || line=none; echo $RANK $line", stdin=reading)
    os.close(reading)
    assert launch.wait() == 0
    assert sorted(launch.out.splitlines()) == ["0 words", "1 none"]


def test_lines_of_ranks_are_not_mixed(start) -> None:
    script = 'for i in 1 2 3 4 5; do printf "$RANK$RANK"; sleep 0.02; printf "$RANK$RANK\\n"; done'
    launch = start(script, ranks=3)
    assert launch.wait() == 0
    assert sorted(launch.out.split()) == sorted(f"{rank}" * 4 for rank in range(3) for _ in range(5))


def test_an_unfinished_line_is_shown_before_it_ends(start) -> None:
    launch = start("printf prompt; sleep 300", ranks=1)
    assert os.read(launch.process.stdout.fileno(), 6) == b"prompt"


def test_each_rank_has_a_log_of_both_outputs_whose_last_lines_are_shown_when_it_fails(
    start, tmp_path
) -> None:
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


@pytest.mark.parametrize("logs", ["file/logs", ""])
def test_a_folder_that_cannot_be_written_is_found_before_anything_starts(start, tmp_path, logs: str) -> None:
    (tmp_path / "file").touch()
    launch = start("touch started", options={"enable_each_rank_log": logs and str(tmp_path / logs)})
    assert launch.wait() == 2
    assert "ACC-615" in launch.err
    assert not (tmp_path / "started").exists()


def test_the_launcher_s_pid_is_in_a_file_as_long_as_it_runs(start) -> None:
    launch = start("echo > up$RANK; sleep 300 & wait", ranks=1, options={"save_pid": True})
    launch.file("up0")
    file = Path(tempfile.gettempdir(), f"{launch.process.pid}.deepspeed")
    assert file.read_text() == str(launch.process.pid)
    launch.process.terminate()
    launch.wait()
    assert launch.out == f"launcher pid: {launch.process.pid}\n"
    assert not file.exists()


def test_the_command_launches_a_script(tmp_path) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('a file of the user was imported')\n")
    (tmp_path / "script.py").write_text(
        "import os, sys\nprint(*sys.argv[1:], os.environ['LOCAL_SIZE'], len(os.sched_getaffinity(0)))\n"
    )
    command = [Path(sys.executable).with_name("accel"), "launch", "--num_accelerators", "1"]
    done = subprocess.run(
        [*command, "--bind_cores_to_rank", "script.py", "--lr", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"--local_rank=0 --lr 1 1 {len(os.sched_getaffinity(0))}\n"


def test_output_survives_a_slow_reader_of_a_non_blocking_pipe(start) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    launch = start("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done", ranks=1, stdout=writing)
    os.close(writing)
    with os.fdopen(reading) as file:
        assert file.read().splitlines() == [f"line {number}" for number in range(20000)]
    assert launch.wait() == 0, launch.err


def test_a_log_is_not_written_through_a_link_nor_to_what_is_no_file(tmp_path) -> None:
    target = tmp_path / "authorized_keys"
    target.write_text("mine\n")
    (tmp_path / "link.log").symlink_to(target)
    os.mkfifo(tmp_path / "pipe.log")
    for name in ("link.log", "pipe.log"):
        with pytest.raises(LogUnwritable):
            guard.open_log(tmp_path / name)
    if os.geteuid() == 0:  # Only root can make files of another user.
        os.chown(target, 12345, 12345)
        with pytest.raises(LogUnwritable, match="no file of yours"):
            guard.open_log(target)
    assert target.read_text() == "mine\n"
