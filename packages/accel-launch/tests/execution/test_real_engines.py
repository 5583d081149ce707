# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The installed engines, on this host and on two loopback addresses over ssh, with an sshd of our own."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from accel_launch import engines
from accel_launch.errors import EngineUnavailable
from accel_launch.options import Options

PACKAGES = {"impi": "impi-rt", "mpich": "mpich", "openmpi": "openmpi-bin", "pdsh": "pdsh"}
TWO = ("127.0.0.1", "127.0.0.2")
SSHD = "/usr/sbin/sshd"

NAMES = ("RANK", "LOCAL_RANK", "CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE", "WORLD_SIZE")
#: Both write the rank's variables; this one also the sum of all ranks' numbers, which begin with 1.
REDUCE = f"""
import os
import torch
import torch.distributed as dist
from accel_core.vendor import torch_threads

torch_threads.finish_at_exit()
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
print(*(os.environ[name] for name in {NAMES}), int(total), flush=True)
dist.destroy_process_group()
"""
MAP = " $".join(("echo", *NAMES))


def not_run(package: str) -> None:
    """A missing package is a failure in CI and a skip elsewhere."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(f"not run: package {package}")


def need(engine: str) -> None:
    if engine == "pdsh" and not shutil.which("pdsh"):
        not_run("pdsh")
    elif engine not in ("local", "pdsh"):
        try:
            engines.named(engine).check(None, Options())
        except EngineUnavailable:
            not_run(PACKAGES[engine])


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An environment in which ssh connects to this machine's loopback addresses, whatever the user's own settings."""
    for program, package in ((SSHD, "openssh-server"), ("ssh", "openssh-client")):
        if not shutil.which(program):
            not_run(package)
    folder = tmp_path_factory.mktemp("sshd")
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    held = socket.socket()  # keeps the port from others; sshd binds with SO_REUSEADDR
    held.bind(("127.0.0.1", 0))
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port = held.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nListenAddress 127.0.0.2\nHostKey {folder}/host\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/user.pub\nPidFile none\nStrictModes no\nPermitRootLogin yes\n"
    )
    (folder / "config").write_text(
        f"Host *\nPort {port}\nIdentityFile {folder}/user\nIdentitiesOnly yes\nStrictHostKeyChecking no\n"
        "UserKnownHostsFile /dev/null\nLogLevel ERROR\nBatchMode yes\n"
    )
    (folder / "bin").mkdir()
    wrapper = folder / "bin" / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
    wrapper.chmod(0o755)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    daemon = subprocess.Popen([SSHD, "-D", "-f", folder / "sshd_config", "-E", folder / "log"])
    try:
        for _ in range(100):
            if subprocess.run([wrapper, TWO[1], "true"], check=False, capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        else:
            pytest.fail(f"no connection: {(folder / 'log').read_text()}")
        yield {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
    finally:
        daemon.terminate()
        daemon.wait()
        held.close()


def rank_map(text: str) -> list[list[int]]:
    return sorted([int(word) for word in line.split()] for line in text.splitlines() if line)


_ALL = tuple(product(PACKAGES, [("localhost",), TWO]))


@pytest.mark.sample("local-*", "pdsh-hosts7-*", "openmpi-hosts5-*")
@pytest.mark.parametrize(
    ("engine", "hosts", "reduces"),
    [
        ("local", ("localhost",), True),
        *((*case, False) for case in _ALL),
        *(pytest.param(*case, True, marks=pytest.mark.slow) for case in _ALL),
    ],
)
def test_ranks_are_where_the_plan_has_them(start, loopback, tmp_path, engine, hosts, reduces):
    need(engine)
    (tmp_path / "reduce.py").write_text(REDUCE)
    program = (sys.executable, "-u", "reduce.py") if reduces else MAP
    launch = start(program, hosts=hosts, options={"launcher": engine}, environment=loopback)
    assert launch.wait(300) == 0, launch.err
    count = len(hosts)
    total = [sum(range(2 * count + 1))] * reduces
    expected = [[rank, rank % 2, rank // 2, count, 2, 2 * count, *total] for rank in range(2 * count)]
    assert rank_map(launch.out) == expected
    assert launch.gone_within(60)


@pytest.mark.sample("*-pdsh", "False-impi")
@pytest.mark.parametrize("engine", PACKAGES)
@pytest.mark.parametrize("killed", [False, True])
def test_two_hosts_are_left_clean(start, loopback, engine, killed):
    need(engine)
    script = "trap '' TERM; setsid sleep 301 & echo > up$RANK; "
    script += (
        "sleep 302; sleep 303" if killed else '[ "$RANK" = 1 ] || sleep 300; echo last words; kill -KILL $$'
    )
    launch = start(script, ranks=1, hosts=TWO, options={"launcher": engine}, environment=loopback, grace=1)
    launch.up()
    if killed:
        launch.process.kill()
    code = launch.wait()
    if not killed:
        assert code == 137
        words = "was killed by SIGKILL (out of memory?); its last lines:\n    last words"
        assert f"rank 1 on 127.0.0.2 {words}" in launch.err
    assert launch.gone_within(60), launch.alive()


def test_unreachable_host_ends_job(start, loopback):
    need("pdsh")
    hosts = ("127.0.0.1", "127.0.0.3")  # where nobody listens
    launch = start("sleep 300", ranks=1, hosts=hosts, options={"launcher": "pdsh"}, environment=loopback)
    assert launch.wait() != 0
    assert "127.0.0.3" in launch.err
    assert launch.gone_within(60)
