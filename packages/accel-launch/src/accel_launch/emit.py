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
from dataclasses import replace
from textwrap import indent

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from accel_core.vendor import format_cpu_list
from accel_launch.options import Options
from accel_launch.plan import Plan
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

# The plan of `accel launch --emit sbatch`. It lies next to this job's output, which all nodes see.
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
# too little for data loaders and for collectives within a host.
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


def jobset(plan: Plan, options: Options) -> str:
    """Return a ConfigMap with the plan, a Secret with its variables that look like secrets, if any, and a JobSet."""
    name = options.job_name
    hidden = {key: plan.exports[key] for key in plan.secrets()}
    shown = replace(plan, exports={key: value for key, value in plan.exports.items() if key not in hidden})
    arguments = [
        *("--plan", "/etc/accel/plan.json", "--no_ssh", "--node_rank", "$(JOB_COMPLETION_INDEX)"),
        # Names of a JobSet's pods: <jobset>-<group>-<job>-<pod>, below a domain that is called as the JobSet.
        *("--master_addr", f"{name}-node-0-0.{name}", "--master_port", str(plan.master_port)),
    ]
    job = _JOBSET.format(
        name=name,
        hosts=len(plan.hosts),
        image=options.image,
        command=json.dumps(call_main("accel_launch.__main__", "python")),
        arguments=json.dumps(arguments),
        port=plan.master_port,
        # The launcher in the pod passes these variables on to the ranks.
        env_from=json.dumps([{"secretRef": {"name": f"{name}-plan"}}] if hidden else []),
        limits=json.dumps(dict(text.split("=") for text in options.resource)),
    )
    secret = _SECRET.format(name=name, secrets=json.dumps(hidden)) if hidden else ""
    return _CONFIG_MAP.format(name=name, plan=indent(shown.to_json(), " " * 4)) + secret + job


def render(plan: Plan, options: Options) -> str:
    """Return the text of `--emit`."""
    return (sbatch if options.emit == "sbatch" else jobset)(plan, options)
