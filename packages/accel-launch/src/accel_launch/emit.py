# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A plan as text: a table for people, and the files of `--emit` for a cluster that starts processes itself.

On each machine of the cluster `python -m accel_launch --plan … --no_ssh --node_rank …` starts the ranks of that
machine, and decides there on which cores they run: the topology of a cluster's machines is not known in advance.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from accel_core.isolated import call_main
from accel_core.vendor import format_cpu_list
from accel_launch.errors import InvalidArguments, InvalidSelection
from accel_launch.options import Options
from accel_launch.plan import Host, Plan, Rank

#: Wide enough for every row: a list of CPUs that is cut off says nothing.
_WIDTH = 10_000


def table(plan: Plan) -> str:
    """Return the plan as text: the program, a row for each rank, unused cores, notes."""
    rows = Table(box=None, pad_edge=False)
    for column in ("rank", "host", "local", "device", "cores", "CPUs", "NUMA", "memory", "threads"):
        rows.add_column(
            column, no_wrap=True, justify="right" if column in ("rank", "local", "cores") else "left"
        )
    for host, rank in plan.ranks():
        rows.add_row(*(escape(cell) for cell in _row(host, rank)))
    stream = io.StringIO()
    Console(file=stream, width=_WIDTH, highlight=False).print(rows)
    lines = "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
    program = shlex.join((*plan.program.command, *plan.program.arguments))
    text = [
        program,
        f"ranks: {plan.world_size}, hosts: {len(plan.hosts)}, master: {plan.master_addr} port {plan.master_port}",
        "",
        lines,
        "",
        *_reserved(plan),
        *(f"note: {note}" for note in plan.notes),
    ]
    return "\n".join(text).rstrip() + "\n"


def _row(host: Host, rank: Rank) -> tuple[str, ...]:
    if host.bound_here:
        cells = ("", "", "decided on the host", "", "", "")
    else:
        policy = rank.memory
        memory = f"{policy.mode} {format_cpu_list(policy.nodes)}".strip()
        cells = (
            rank.device,
            str(rank.cores or ""),
            format_cpu_list(rank.cpus) or "not bound",
            format_cpu_list(rank.numa_nodes),
            memory,
            rank.environment.get("OMP_NUM_THREADS", ""),
        )
    return (str(rank.rank), host.name, str(rank.local_rank), *cells)


def _reserved(plan: Plan) -> list[str]:
    return [
        f"reserved on {host.name}: CPUs {format_cpu_list(host.reserved)}"
        for host in plan.hosts
        if host.reserved
    ]


#: A label of DNS, which names of Kubernetes objects are; short enough for the names made of it.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,400}")
_RESOURCE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._/-]{0,200})=([0-9]{1,9}(?:\.[0-9]{1,3})?[A-Za-z]{0,2})")


def job_name(options: Options) -> str:
    """Return the name of the job; raises `InvalidArguments`."""
    if not _NAME.fullmatch(options.job_name):
        raise _invalid("--job_name", options.job_name, "lower-case letters, digits and hyphens, at most 40")
    return options.job_name


def image(options: Options) -> str:
    """Return the container image; raises `InvalidArguments` if there is none."""
    if not options.image or not _IMAGE.fullmatch(options.image):
        what = "correct --image" if options.image else "add --image"
        raise _invalid("--image", options.image or "", "the name of a container image", what)
    return options.image


def resources(options: Options) -> dict[str, str]:
    """Return quantity by name of a resource; raises `InvalidArguments`."""
    found = {}
    for text in options.resource:
        match = _RESOURCE.fullmatch(text)
        if not match:
            raise _invalid("--resource", text, "NAME=N, such as cpu=64")
        found[match[1]] = match[2]
    return found


def _invalid(option: str, found: str, expected: str, do: str = "") -> InvalidArguments:
    return InvalidArguments(
        what=f"cannot use {option} with --emit",
        found=repr(found[:80]),
        expected=expected,
        do=do or f"correct {option}",
    )


Value = Mapping[str, "Value"] | Sequence["Value"] | str | int | bool


def dump_yaml(*documents: Value) -> str:
    """Return the documents. Strings are ASCII; one with several lines is written as a block."""
    return "---\n".join("\n".join(_lines(document)) + "\n" for document in documents)


def _lines(value: Value) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _entry(f"{key}:", item)
    elif isinstance(value, str) or not isinstance(value, Sequence):
        yield json.dumps(value)
    else:
        for item in value:
            first, *rest = _lines(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)


def _entry(key: str, value: Value) -> Iterator[str]:
    if isinstance(value, str) and "\n" in value:
        yield f"{key} |"
        yield from (f"  {line}" for line in value.rstrip("\n").split("\n"))
    elif isinstance(value, str | int):
        yield f"{key} {json.dumps(value)}"
    else:
        yield key
        yield from (f"  {line}" for line in _lines(value))


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
    """Return a batch script for SLURM: one task per node starts the ranks of its node; raises `InvalidArguments`.

    `--launcher_args` are further `#SBATCH` lines.
    """
    name = job_name(options)
    own = [f"--job-name={name}", f"--nodes={len(plan.hosts)}", "--ntasks-per-node=1", "--exclusive"]
    return _SCRIPT.format(
        directives="\n".join(f"#SBATCH {_directive(text)}" for text in (*own, *options.launcher_args)),
        name=name,
        plan=plan.to_json(),
        command=shlex.join(call_main("accel_launch.__main__", sys.executable)),
    )


def _directive(text: str) -> str:
    if not text.isprintable():
        raise InvalidArguments(
            what="cannot write --launcher_args as #SBATCH lines",
            found=repr(text[:80]),
            expected="options of sbatch without control characters, such as --partition=cpu",
            do="correct --launcher_args",
        )
    return shlex.quote(text)


_FOLDER, _FILE = "/etc/accel", "plan.json"
#: Name of the JobSet's one group of pods, and of PyTorchJob's container, which the operator looks for.
_GROUP, _CONTAINER = "node", "pytorch"


def jobset(plan: Plan, options: Options) -> str:
    """Return a ConfigMap, a Secret if there is any, and a JobSet; raises `InvalidArguments`."""
    name = job_name(options)
    # Names of a JobSet's pods: <jobset>-<group>-<job>-<pod>, below a domain that is called as the JobSet.
    pod = _pod(plan, options, "$(JOB_COMPLETION_INDEX)", f"{name}-{_GROUP}-0-0.{name}")
    count = len(plan.hosts)
    job: Value = {
        "parallelism": count,
        "completions": count,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": pod,
    }
    spec: Value = {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "failurePolicy": {"maxRestarts": 0},
        "replicatedJobs": [{"name": _GROUP, "replicas": 1, "template": {"spec": job}}],
    }
    return dump_yaml(*_of_plan(plan, name), _object("jobset.x-k8s.io/v1alpha2", "JobSet", name, spec))


def pytorchjob(plan: Plan, options: Options) -> str:
    """Return a ConfigMap, a Secret if there is any, and a PyTorchJob; raises `InvalidArguments`."""
    name = job_name(options)
    # The operator's RANK is the number of the pod; the ranks' own environment replaces it.
    pod = _pod(plan, options, "$(RANK)", "$(MASTER_ADDR)")
    replicas: dict[str, Value] = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": pod}}
    if len(plan.hosts) > 1:
        replicas["Worker"] = {"replicas": len(plan.hosts) - 1, "restartPolicy": "Never", "template": pod}
    spec: Value = {
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
        "pytorchReplicaSpecs": replicas,
    }
    return dump_yaml(*_of_plan(plan, name), _object("kubeflow.org/v1", "PyTorchJob", name, spec))


def _object(version: str, kind: str, name: str, spec: Value) -> Value:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _of_plan(plan: Plan, name: str) -> list[Value]:
    """Return a ConfigMap with the plan, and a Secret with those of its variables that look like secrets."""
    hidden = {key: plan.exports[key] for key in plan.secrets()}
    shown = replace(plan, exports={key: value for key, value in plan.exports.items() if key not in hidden})
    metadata = {"name": f"{name}-plan"}
    made: list[Value] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_FILE: shown.to_json()}}
    ]
    if hidden:
        made.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": hidden})
    return made


def _pod(plan: Plan, options: Options, node_rank: str, master: str) -> Value:
    """Return the template of a pod. Kubernetes replaces `$(NAME)` in its arguments by variables of the container."""
    container: dict[str, Value] = {
        "name": _CONTAINER,
        "image": image(options),
        "command": list(call_main("accel_launch.__main__", "python")),
        "args": [
            *("--plan", f"{_FOLDER}/{_FILE}", "--no_ssh", "--node_rank", node_rank),
            *("--master_addr", master, "--master_port", str(plan.master_port)),
        ],
        "ports": [{"name": "master", "containerPort": plan.master_port}],
        "volumeMounts": [{"name": "plan", "mountPath": _FOLDER}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    if plan.secrets():
        # The launcher of the pod hands them on to the ranks.
        container["envFrom"] = [{"secretRef": {"name": f"{job_name(options)}-plan"}}]
    if limits := resources(options):
        container["resources"] = {"limits": limits}
    return {
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": [
                {"name": "plan", "configMap": {"name": f"{job_name(options)}-plan"}},
                # A container has 64 MB of shared memory, too little for data loaders and for collectives within a host.
                {"name": "shm", "emptyDir": {"medium": "Memory"}},
            ],
        }
    }


#: Ray decides on which machine a rank runs, and Ray Train which address the ranks use.
_OF_THE_PLACEMENT = ("MASTER_ADDR", "MASTER_PORT")


def ray(plan: Plan, options: Options) -> str:
    """Return a placement for Ray as JSON; raises `InvalidArguments`, `InvalidSelection`."""
    counts = {len(host.ranks) for host in plan.hosts}
    if len(counts) > 1:
        raise InvalidSelection(
            what="cannot place the ranks with Ray",
            found=f"hosts with {' and '.join(map(str, sorted(counts)))} ranks",
            expected="the same number of ranks on each host",
            do="select as many slots on each host",
        )
    cores = min(rank.cores for _, rank in plan.ranks()) or 1
    bundle = {"CPU": float(cores)} | _numbers(resources(options))
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
                "runtime_env": {
                    "env_vars": {
                        name: value
                        for name, value in {**plan.exports, **rank.environment}.items()
                        if name not in _OF_THE_PLACEMENT
                    }
                },
            }
            for _, rank in plan.ranks()
        ],
    }
    return json.dumps(placement, indent=2) + "\n"


def _numbers(quantities: Mapping[str, str]) -> dict[str, float]:
    try:
        return {name: float(number) for name, number in quantities.items()}
    except ValueError as error:
        raise InvalidArguments(
            what="cannot use --resource with --emit ray",
            found=str(error),
            expected="numbers without a unit, such as GPU=1",
            do="correct --resource",
        ) from error


_FORMATS: dict[str, Callable[[Plan, Options], str]] = {
    "sbatch": sbatch,
    "k8s": jobset,
    "pytorchjob": pytorchjob,
    "ray": ray,
}


def render(plan: Plan, options: Options) -> str:
    """Return the text of `--emit`; raises `InvalidArguments` for a name or an image that cannot be used there."""
    return _FORMATS[options.emit or ""](plan, options)
