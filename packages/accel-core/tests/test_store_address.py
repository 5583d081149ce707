# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where the store of rank 0 listens."""

import os
import socket
import subprocess
import sys

import pytest

from accel_core import env, store_address

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


@pytest.mark.parametrize(
    ("address", "listens", "reached"),
    [("127.0.0.1", "127.0.0.1", "False"), ("localhost", "localhost", "False"), ("127.0.0.1", "", "True")],
)
def test_rank_0s_store_listens_where_the_plan_says(address: str, listens: str, reached: str) -> None:
    variables = {"MASTER_ADDR": address, env.STORE_ADDRESS.name: listens, "RANK": "0", "WORLD_SIZE": "1"}
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))  # nobody else gets the port; torch binds it, as nobody listens
        variables["MASTER_PORT"] = str(held.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-c", _RANK],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [reached] * 2


def test_an_address_that_is_not_of_this_host_is_left_to_torch() -> None:
    assert store_address._bound("192.0.2.1", 0) is None  # an address for documentation, which nobody has
    with socket.create_server(("127.0.0.1", 0)) as used:
        assert store_address._bound("127.0.0.1", used.getsockname()[1]) is None
