# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where the store of rank 0 listens, and what only the ranks of a job know."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from accel_core import env, store_address
from accel_core.launch.job import Job
from accel_core.launch.plan import Host, MemoryPolicy, Plan, Program, Rank

#: Prints whether other addresses of this host than the plan's reach the store; uses it, also a second time.
_RANK = """
import os, socket
import torch.distributed as dist
for _ in range(2):
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    other = socket.socket()
    other.settimeout(60)
    print(other.connect_ex(("127.0.0.2", store.port)) == 0)
    other.close()
    dist.barrier()
    dist.destroy_process_group()
    del store
"""


def _run(address: str, listens: str) -> list[str]:
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))  # nobody else gets the port; torch binds it, as nobody listens
        variables = {
            "MASTER_ADDR": address,
            "MASTER_PORT": str(held.getsockname()[1]),
            "RANK": "0",
            "WORLD_SIZE": "1",
            env.STORE_ADDRESS.name: listens,
        }
        done = subprocess.run(
            [sys.executable, "-c", _RANK],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("address", "listens", "reached"),
    [("127.0.0.1", "127.0.0.1", "False"), ("localhost", "localhost", "False"), ("127.0.0.1", "", "True")],
)
def test_rank_0s_store_listens_where_the_plan_says(address: str, listens: str, reached: str) -> None:
    assert _run(address, listens) == [reached] * 2


def test_an_address_that_is_not_of_this_host_is_left_to_torch() -> None:
    assert store_address._bound("192.0.2.1", 0) is None  # an address for documentation, which nobody has
    with socket.create_server(("127.0.0.1", 0)) as used:
        assert store_address._bound("127.0.0.1", used.getsockname()[1]) is None


def _plan(*hosts: str, address: str = "127.0.0.1") -> Plan:
    made = (
        Host(name, number, (Rank(number, 0, 0, "", (), 0, (), MemoryPolicy(), {}),))
        for number, name in enumerate(hosts)
    )
    return Plan(tuple(made), address, 29500, Program(("x",)), "/")


def _given(plan: Plan) -> list[tuple[str, str | None]]:
    job = Job(plan, secret="s")
    assigned = [job.assignment(host, rank).environment for host, rank in plan.ranks()]
    return [(each[env.STORE_ADDRESS.name], each.get(env.JOB_SECRET.name)) for each in assigned]


def test_ranks_of_one_launcher_have_a_secret_and_those_of_several_have_none() -> None:
    assert _given(_plan("localhost")) == [("127.0.0.1", "s")]
    assert _given(_plan("a", "b", address="192.0.2.1")) == [("192.0.2.1", None), ("", None)]
    assert Job(_plan("a")).secret != Job(_plan("a")).secret
    assert len(Job(_plan("a")).secret) == 64


def test_a_name_may_have_another_address_elsewhere_so_all_interfaces_are_listened_on() -> None:
    assert _given(_plan("a", "b", address="a.example")) == [("", None), ("", None)]


def test_the_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(env.JOB_SECRET.name, "s3cret")
    assert env.JOB_SECRET.shown() == "(secret)"
    assert "s3cret" not in repr(Job(_plan("a"), secret="s3cret"))
