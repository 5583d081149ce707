# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A plan as text: a table for people, and the files of `--emit` for a cluster that starts processes itself.

On each machine of the cluster `python -m accel_launch --plan … --no_ssh --node_rank …` starts the ranks of that
machine, and decides there on which cores they run: the topology of a cluster's machines is not known in advance.
"""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from textwrap import indent

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from accel_core.vendor import format_cpu_list
from accel_launch.errors import InvalidSelection
from accel_launch.options import Options
from accel_launch.plan import Host, Plan, Rank
from accel_launch.protocol import call_main

#: Wide enough for every row: a list of CPUs that is cut off says nothing.
_WIDTH = 10_000


def table(plan: Plan) -> str:
    """Return the plan as text: the program, a row for each rank, unused cores, notes."""
    rows = Table(box=None, pad_edge=False)
    for column in ("rank", "host", "local", "device", "cores", "CPUs", "NUMA", "memory", "threads"):
        right = column in ("rank", "local", "cores")
        rows.add_column(column, no_wrap=True, justify="right" if right else "left")
    for host, rank in plan.ranks():
        cells = (
            rank.device,
            str(rank.cores or ""),
            format_cpu_list(rank.cpus) or "not bound",
            format_cpu_list(rank.numa_nodes),
            f"{rank.memory.mode} {format_cpu_list(rank.memory.nodes)}".strip(),
            rank.environment.get("OMP_NUM_THREADS", ""),
        )
        shown = ("", "", "decided on the host") if host.bound_here else cells
        rows.add_row(*map(escape, (str(rank.rank), host.name, str(rank.local_rank), *shown)))
    console = Console(file=io.StringIO(), width=_WIDTH, highlight=False)
    with console.capture() as captured:
        console.print(rows)
    text = [
        shlex.join((*plan.program.command, *plan.program.arguments)),
        f"ranks: {plan.world_size}, hosts: {len(plan.hosts)}, master: {plan.master_addr} port {plan.master_port}",
        "",
        *(line.rstrip() for line in captured.get().splitlines()),
        "",
        *(
            f"reserved on {host.name}: CPUs {format_cpu_list(host.reserved)}"
            for host in plan.hosts
            if host.reserved
        ),
        *(f"note: {note}" for note in plan.notes),
    ]
    return "\n".join(text).rstrip() + "\n"


_SCRIPT = """\
#!/bin/bash
{directives}
set -euo pipefail

# The plan of `accel launch --emit sbatch`. It lies beside this job's output, which all nodes see.
plan="$SLURM_SUBMIT_DIR/{name}-$SLURM_JOB_ID.plan.json"
(umask 077 && cat > "$plan") <<'ACCEL_PLAN'
{plan}
ACCEL_PLAN
trap 'rm -f "$plan"' EXIT

master=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --kill-on-bad-exit=1 --cpu-bind=none \\
    bash -c 'exec "$@" --node_rank "$SLURM_NODEID"' accel \\
    {command} --plan "$plan" --no_ssh --master_addr "$master"
"""


def sbatch(plan: Plan, options: Options) -> str:
    """Return a batch script for SLURM: one task per node starts the ranks of its node.

    `--launcher_args` are further `#SBATCH` lines.
    """
    name = options.job_name
    own = [f"--job-name={name}", f"--nodes={len(plan.hosts)}", "--ntasks-per-node=1", "--exclusive"]
    return _SCRIPT.format(
        directives="\n".join(f"#SBATCH {shlex.quote(text)}" for text in (*own, *options.launcher_args)),
        name=name,
        plan=plan.to_json(),
        command=shlex.join(call_main("accel_launch.__main__", sys.executable)),
    )


_CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {{name: "{name}-plan"}}
data:
  plan.json: |
{plan}
---
"""
_SECRET = """\
apiVersion: v1
kind: Secret
metadata: {{name: "{name}-plan"}}
stringData: {secrets}
---
"""
# Kubernetes replaces `$(NAME)` in the arguments by variables of the container. A container has 64 MB of shared memory,
# too little for data loaders and for collectives within a host. The operator of PyTorchJob looks for the container's
# name.
_POD = """\
spec:
  restartPolicy: Never
  containers:
    - name: pytorch
      image: "{image}"
      command: {command}
      args: {arguments}
      ports:
        - {{name: master, containerPort: {port}}}
      volumeMounts:
        - {{name: plan, mountPath: /etc/accel}}
        - {{name: shm, mountPath: /dev/shm}}
      envFrom: {env_from}
      resources: {{limits: {limits}}}
  volumes:
    - {{name: plan, configMap: {{name: "{name}-plan"}}}}
    - {{name: shm, emptyDir: {{medium: Memory}}}}
"""
_JOBSET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: "{name}"}}
spec:
  network: {{enableDNSHostnames: true, publishNotReadyAddresses: true}}
  failurePolicy: {{maxRestarts: 0}}
  replicatedJobs:
    - name: node
      replicas: 1
      template:
        spec:
          parallelism: {hosts}
          completions: {hosts}
          completionMode: Indexed
          backoffLimit: 0
          template:
{pod}
"""
_PYTORCHJOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: "{name}"}}
spec:
  runPolicy: {{cleanPodPolicy: Running, backoffLimit: 0}}
  pytorchReplicaSpecs:
"""
_REPLICAS = """\
    {role}:
      replicas: {count}
      restartPolicy: Never
      template:
{pod}
"""


def jobset(plan: Plan, options: Options) -> str:
    """Return a ConfigMap, a Secret if there is any, and a JobSet."""
    # Names of a JobSet's pods: <jobset>-<group>-<job>-<pod>, below a domain that is called as the JobSet.
    master = f"{options.job_name}-node-0-0.{options.job_name}"
    pod = indent(_pod(plan, options, "$(JOB_COMPLETION_INDEX)", master), " " * 12).rstrip()
    return _of_plan(plan, options) + _JOBSET.format(name=options.job_name, hosts=len(plan.hosts), pod=pod)


def pytorchjob(plan: Plan, options: Options) -> str:
    """Return a ConfigMap, a Secret if there is any, and a PyTorchJob."""
    # The operator's RANK is the number of the pod; the ranks' own environment replaces it.
    pod = indent(_pod(plan, options, "$(RANK)", "$(MASTER_ADDR)"), " " * 8).rstrip()
    roles = {"Master": 1, "Worker": len(plan.hosts) - 1}
    replicas = (_REPLICAS.format(role=role, count=count, pod=pod) for role, count in roles.items() if count)
    return _of_plan(plan, options) + _PYTORCHJOB.format(name=options.job_name) + "".join(replicas)


def _of_plan(plan: Plan, options: Options) -> str:
    """Return a ConfigMap with the plan, and a Secret with those of its variables that look like secrets."""
    hidden = {key: plan.exports[key] for key in plan.secrets()}
    shown = replace(plan, exports={key: value for key, value in plan.exports.items() if key not in hidden})
    config_map = _CONFIG_MAP.format(name=options.job_name, plan=indent(shown.to_json(), " " * 4))
    return config_map + (_SECRET.format(name=options.job_name, secrets=json.dumps(hidden)) if hidden else "")


def _pod(plan: Plan, options: Options, node_rank: str, master: str) -> str:
    """Return the template of a pod; the launcher in it hands the variables of the Secret on to the ranks."""
    arguments = [
        *("--plan", "/etc/accel/plan.json", "--no_ssh", "--node_rank", node_rank),
        *("--master_addr", master, "--master_port", str(plan.master_port)),
    ]
    env_from = [{"secretRef": {"name": f"{options.job_name}-plan"}}] if plan.secrets() else []
    return _POD.format(
        name=options.job_name,
        image=options.image,
        command=json.dumps(call_main("accel_launch.__main__", "python")),
        arguments=json.dumps(arguments),
        port=plan.master_port,
        env_from=json.dumps(env_from),
        limits=json.dumps(_resources(options)),
    )


def _resources(options: Options) -> dict[str, str]:
    """Return quantity by name of a resource."""
    return dict(text.split("=") for text in options.resource)


def ray(plan: Plan, options: Options) -> str:
    """Return a placement for Ray as JSON; raises `InvalidSelection`."""
    counts = {len(host.ranks) for host in plan.hosts}
    if len(counts) > 1:
        raise InvalidSelection(
            what="cannot place the ranks with Ray",
            found=f"hosts with {' and '.join(map(str, sorted(counts)))} ranks",
            expected="the same number of ranks on each host",
            do="select as many slots on each host",
        )
    cores = min(rank.cores for _, rank in plan.ranks()) or 1
    bundle = {"CPU": float(cores)} | {name: float(number) for name, number in _resources(options).items()}
    several = len(plan.hosts) > 1
    strategy = ("STRICT_SPREAD" if counts == {1} else "PACK") if several else "STRICT_PACK"
    placement = {
        "scaling_config": {
            "num_workers": plan.world_size,
            "resources_per_worker": bundle,
            "placement_strategy": strategy,
        },
        "bundles": [bundle] * plan.world_size,
        "strategy": strategy,
        "ranks": [
            {
                "rank": rank.rank,
                "command": list(plan.command(rank)),
                "runtime_env": {"env_vars": _variables(plan, host, rank)},
            }
            for host, rank in plan.ranks()
        ],
    }
    return json.dumps(placement, indent=2) + "\n"


def _variables(plan: Plan, host: Host, rank: Rank) -> dict[str, str]:
    # Ray decides on which machine a rank runs, and Ray Train which address the ranks use.
    variables = {**plan.exports, **plan.variables(host, rank)}
    return {name: value for name, value in variables.items() if name not in ("MASTER_ADDR", "MASTER_PORT")}


_FORMATS: dict[str, Callable[[Plan, Options], str]] = {
    "sbatch": sbatch,
    "k8s": jobset,
    "pytorchjob": pytorchjob,
    "ray": ray,
}


def render(plan: Plan, options: Options) -> str:
    """Return the text of `--emit`; raises `InvalidSelection`."""
    return _FORMATS[options.emit or ""](plan, options)
