# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Files for Slurm and Kubernetes."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from accel_launch import emit, planning
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
            yield from lost(item, kept.get(key), f"{path}.{key}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for index, item in enumerate(given):
            yield from lost(item, kept[index], f"{path}[{index}]")
    elif given != kept:
        yield path


def test_secrets_of_jobset(plan):
    options = Options(emit="k8s", image="registry.example/train:1", job_name="run-7")
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


def test_jobset(plan):
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


def test_batch_script(plan, tmp_path, monkeypatch, run):
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
