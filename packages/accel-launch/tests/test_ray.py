# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The placement for Ray, with a real local Ray: two actors, each with one simulated NPU."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """\
import json, os, torch, torch.distributed as dist
from accel_core import get_accelerator, torch_threads
accelerator = get_accelerator()
torch_threads.finish_at_exit()
dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
visible = os.environ[accelerator.visible_devices_envs()[0]]
print(json.dumps([accelerator.device_name(), accelerator.device_count(), visible, total.item()]))
"""
#: In a process of its own: Ray leaves threads and signal handlers behind.
DRIVER = """\
import json, os, subprocess, sys
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

placement = json.load(open(sys.argv[1]))
ray.init(num_cpus=2, resources={"toy": 2}, include_dashboard=False, log_to_driver=False)
group = placement_group(placement["bundles"], strategy=placement["strategy"])
ray.get(group.ready(), timeout=60)

@ray.remote
class Rank:
    def run(self, command):
        environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200).stdout

PORT = sys.argv[2]
waiting = []
for index, rank in enumerate(placement["ranks"]):
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
    options = {"num_cpus": 1, "resources": {"toy": 1}, "runtime_env": rank["runtime_env"]}
    actor = Rank.options(**options, scheduling_strategy=strategy).remote()
    waiting.append((actor, actor.run.remote(rank["command"])))
print("\\n".join(ray.get(result).strip().splitlines()[-1] for _, result in waiting))
ray.shutdown()
"""


@pytest.mark.slow
def test_actors_see_the_devices_of_the_plan_and_join_one_group(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="not run: package ray")
    (tmp_path / "rank.py").write_text(PROGRAM)
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    environment.pop("DS_ACCELERATOR", None)
    launch = [
        sys.executable,
        "-m",
        "accel_core.cli",
        "sim",
        "npu",
        "--",
        sys.executable,
        "-m",
        "accel_launch",
    ]
    options = ["--emit", "ray", "--num_accelerators", "2", "--resource", "toy=1", str(tmp_path / "rank.py")]
    emitted = subprocess.run([*launch, *options], capture_output=True, text=True, check=True, env=environment)
    (tmp_path / "placement.json").write_text(emitted.stdout)
    with socket.socket() as free:
        free.bind(("", 0))
        # Held until the end: torch's store binds with it, and nobody else gets the port.
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = free.getsockname()[1]
        driven = subprocess.run(
            [sys.executable, "-c", DRIVER, str(tmp_path / "placement.json"), str(port)],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            timeout=400,
            check=False,
        )
    assert driven.returncode == 0, driven.stderr
    assert [json.loads(line) for line in driven.stdout.splitlines()[-2:]] == [["npu", 2, "0,1", 3.0]] * 2
