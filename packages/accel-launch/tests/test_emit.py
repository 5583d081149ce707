# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Files for SLURM, Kubernetes and Ray."""

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from accel_core import processes
from accel_launch import emit, planning
from accel_launch.errors import InvalidSelection
from accel_launch.machine import Accelerator
from accel_launch.options import Options
from accel_launch.plan import Binding, Plan, Program

HOSTILE = ("$(touch injected)", "`x`", "'; exit 3; '", "ACCEL_PLAN", "a\nACCEL_PLAN\nb", "é\x7f", "$(RANK)")


@pytest.fixture
def plan(toy: Accelerator) -> Plan:
    program = Program(("python", "-u", "train.py"), HOSTILE)
    job = Plan((), "node-0", 29500, program, ".", binding=Binding())
    return planning.arrange(job, {"node-0": (0, 1), "node-1": (0, 1)}, {}, toy, {})


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def lost(given: object, kept: object, path: str = "") -> Iterator[str]:
    """Yield the paths of what `kept` lacks of `given`."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, item in given.items():
            if key in kept:
                yield from lost(item, kept[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for index, item in enumerate(given):
            yield from lost(item, kept[index], f"{path}[{index}]")
    elif given != kept:
        yield path


@pytest.mark.parametrize("kind", ["k8s", "pytorchjob"])
def test_what_looks_like_a_secret_is_in_a_secret_and_nowhere_else(kind, plan):
    options = Options(emit=kind, image="registry.example/train:1", job_name="run-7")
    config, job = documents(emit.render(plan, options))
    assert (config["kind"], config["metadata"]["name"]) == ("ConfigMap", "run-7-plan")
    assert Plan.from_json(config["data"]["plan.json"]) == plan
    hidden = {"WANDB_API_KEY": "hunter2: #é'\"\\", "TRACKING": "https://me:hunter2@host/x"}
    shown = {"UCX_TLS": "tcp", "TOKENIZERS_PARALLELISM": "1", "LD_LIBRARY_PATH": "/l"}
    plan = replace(plan, exports={**hidden, **shown})
    config, secret, job = documents(emit.render(plan, options))
    assert (secret["kind"], secret["stringData"]) == ("Secret", hidden)
    assert "hunter2" not in json.dumps([config, job])
    assert Plan.from_json(config["data"]["plan.json"]).exports == shown
    assert f"'envFrom': [{{'secretRef': {{'name': '{secret['metadata']['name']}'}}}}]" in str(job)


def test_a_jobset_is_one_of_the_published_models(plan):
    models = pytest.importorskip(
        "kubeflow_trainer_api.models", reason="not run: package kubeflow-trainer-api"
    )
    made = documents(
        emit.render(plan, Options(emit="k8s", image="x:1", resource=("cpu=64", "a.example/b=2")))
    )[1]
    assert list(lost(made, models.JobsetV1alpha2JobSet.from_dict(made).to_dict())) == []
    (group,) = made["spec"]["replicatedJobs"]
    assert group["template"]["spec"]["completions"] == 2
    pod = group["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][-4:] == ["--master_addr", "accel-node-0-0.accel", "--master_port", "29500"]
    assert container["resources"] == {"limits": {"cpu": "64", "a.example/b": "2"}}
    made["spec"]["replicatedJobs"][0]["template"]["spec"]["parallel"] = 1
    assert list(lost(made, models.JobsetV1alpha2JobSet.from_dict(made).to_dict())), "the check sees nothing"


def test_a_pytorchjob_is_one_of_the_published_models(plan):
    training = pytest.importorskip("kubeflow.training.models", reason="not run: package kubeflow-training")
    client = pytest.importorskip("kubernetes.client").ApiClient()
    made = documents(emit.render(plan, Options(emit="pytorchjob", image="x:1")))[1]
    specs = made["spec"]["pytorchReplicaSpecs"]
    assert {name: spec["replicas"] for name, spec in specs.items()} == {"Master": 1, "Worker": 1}
    for spec in specs.values():
        kept = _through(client, training.KubeflowOrgV1ReplicaSpec, spec)
        assert list(lost(spec, kept)) == []
    policy = made["spec"]["runPolicy"]
    assert list(lost(policy, _through(client, training.KubeflowOrgV1RunPolicy, policy))) == []
    alone = documents(
        emit.render(replace(plan, hosts=plan.hosts[:1]), Options(emit="pytorchjob", image="x:1"))
    )[1]
    assert list(alone["spec"]["pytorchReplicaSpecs"]) == ["Master"]


def _through(client: Any, model: type, data: dict[str, Any]) -> object:
    """Return the data after a way through the generated model, which drops what it does not know."""
    response = type("Response", (), {"data": json.dumps(data)})
    return client.sanitize_for_serialization(client.deserialize(response, model))


#: The programs that the batch script calls: srun executes the command once for each node, and python records.
BATCH = {
    "scontrol": "#!/bin/sh\nprintf 'n7\\nn8\\n'\n",
    "srun": "#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\n"
    'for n in 0 1; do SLURM_NODEID=$n "$@" || exit; done\n',
    "python": f"""#!{sys.executable}
import json, os, sys
plan = sys.argv[sys.argv.index('--plan') + 1]
assert os.stat(plan).st_mode & 0o777 == 0o600
open('started', 'a').write(json.dumps([sys.argv[1:], open(plan).read()]) + '\\n')
""",
}


def test_a_batch_script_starts_the_launcher_once_on_each_node(plan, tmp_path, monkeypatch, run):
    folder = tmp_path / "a b"
    (folder / "bin").mkdir(parents=True)
    for name, content in BATCH.items():
        (folder / "bin" / name).write_text(content)
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "bin" / "python"))
    text = emit.render(plan, Options(emit="sbatch", launcher_args=("--partition=cpu", "--comment=a 'b'")))
    monkeypatch.undo()
    assert "#SBATCH --partition=cpu\n" in text
    assert "#SBATCH --nodes=2\n" in text
    (folder / "job.sh").write_text(text)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    slurm = {"SLURM_SUBMIT_DIR": str(folder), "SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[7-8]"}
    done = run("env", "-C", folder, "bash", "job.sh", **slurm, PATH=path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    started = [json.loads(line) for line in (folder / "started").read_text().splitlines()]
    for number, (arguments, written) in enumerate(started):
        assert (arguments[0], arguments[2]) == ("-c", "--plan")
        assert arguments[4:] == ["--no_ssh", "--master_addr", "n7", "--node_rank", str(number)]
        assert Plan.from_json(written) == plan
    assert len(started) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["bin", "job.sh", "started"]


def test_a_placement_for_ray(plan, toy):
    visible = planning.with_devices(plan, toy)
    placement = json.loads(emit.render(visible, Options(emit="ray", resource=("GPU=1",))))
    assert placement["scaling_config"] == {
        "num_workers": 4,
        "resources_per_worker": {"CPU": 1.0, "GPU": 1.0},
        "placement_strategy": "PACK",
    }
    assert placement["bundles"] == [{"CPU": 1.0, "GPU": 1.0}] * 4
    environment = placement["ranks"][3]["runtime_env"]["env_vars"]
    assert [environment[name] for name in ("RANK", "LOCAL_RANK", "TOY_VISIBLE_DEVICES")] == ["3", "1", "0,1"]
    assert "MASTER_ADDR" not in environment
    assert placement["ranks"][3]["command"][:4] == ["python", "-u", "train.py", "--local_rank=1"]
    uneven = replace(plan, hosts=(plan.hosts[0], replace(plan.hosts[1], ranks=plan.hosts[1].ranks[:1])))
    with pytest.raises(InvalidSelection):
        emit.render(uneven, Options(emit="ray"))


PROGRAM = """\
import json, os, torch, torch.distributed as dist
from accel_core import get_accelerator
from accel_core.vendor import torch_threads
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
def test_actors_see_the_devices_of_the_plan_and_join_one_group(tmp_path):
    pytest.importorskip("ray", reason="not run: package ray")
    (tmp_path / "rank.py").write_text(PROGRAM)
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    environment.pop("DS_ACCELERATOR", None)
    launch = f"{sys.executable} -m accel_core.cli sim npu -- {sys.executable} -m accel_launch --emit ray"
    options = ["--num_accelerators", "2", "--resource", "toy=1", str(tmp_path / "rank.py")]
    emitted = subprocess.run(
        [*shlex.split(launch), *options], capture_output=True, text=True, check=True, env=environment
    )
    (tmp_path / "placement.json").write_text(emitted.stdout)
    with socket.socket() as free:
        free.bind(("", 0))
        # Held until the end: torch's store binds with it, and nobody else gets the port.
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = free.getsockname()[1]
        driven = processes.run(
            [sys.executable, "-c", DRIVER, str(tmp_path / "placement.json"), str(port)],
            400,
            env=environment,
            cwd=tmp_path,
        )
    assert driven.returncode == 0, driven.stderr
    assert [json.loads(line) for line in driven.stdout.splitlines()[-2:]] == [["npu", 2, "0,1", 3.0]] * 2
