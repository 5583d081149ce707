# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Objects for Kubernetes: a JobSet, or Kubeflow's PyTorchJob; the plan is a ConfigMap. One pod is one host."""

from __future__ import annotations

from dataclasses import replace

from accel_core.launch import entry
from accel_core.launch.emit import yaml
from accel_core.launch.emit.checks import image, job_name, resources
from accel_core.launch.options import Options
from accel_core.launch.plan import Plan

_FOLDER, _FILE = "/etc/accel", "plan.json"
#: Name of the JobSet's one group of pods, and of PyTorchJob's container, which the operator looks for.
_GROUP, _CONTAINER = "node", "pytorch"


def jobset(plan: Plan, options: Options) -> str:
    """Return a ConfigMap, a Secret if there is any, and a JobSet; raises `InvalidArguments`."""
    name = job_name(options)
    # Names of a JobSet's pods: <jobset>-<group>-<job>-<pod>, below a domain that is called as the JobSet.
    pod = _pod(plan, options, "$(JOB_COMPLETION_INDEX)", f"{name}-{_GROUP}-0-0.{name}")
    count = len(plan.hosts)
    job: yaml.Value = {
        "parallelism": count,
        "completions": count,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": pod,
    }
    spec: yaml.Value = {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "failurePolicy": {"maxRestarts": 0},
        "replicatedJobs": [{"name": _GROUP, "replicas": 1, "template": {"spec": job}}],
    }
    return yaml.dump(*_of_plan(plan, name), _object("jobset.x-k8s.io/v1alpha2", "JobSet", name, spec))


def pytorchjob(plan: Plan, options: Options) -> str:
    """Return a ConfigMap, a Secret if there is any, and a PyTorchJob; raises `InvalidArguments`."""
    name = job_name(options)
    # The operator's RANK is the number of the pod; the ranks' own environment replaces it.
    pod = _pod(plan, options, "$(RANK)", "$(MASTER_ADDR)")
    replicas: dict[str, yaml.Value] = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": pod}}
    if len(plan.hosts) > 1:
        replicas["Worker"] = {"replicas": len(plan.hosts) - 1, "restartPolicy": "Never", "template": pod}
    spec: yaml.Value = {
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
        "pytorchReplicaSpecs": replicas,
    }
    return yaml.dump(*_of_plan(plan, name), _object("kubeflow.org/v1", "PyTorchJob", name, spec))


def _object(version: str, kind: str, name: str, spec: yaml.Value) -> yaml.Value:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _of_plan(plan: Plan, name: str) -> list[yaml.Value]:
    """Return a ConfigMap with the plan, and a Secret with those of its variables that look like secrets."""
    hidden = {key: plan.exports[key] for key in plan.secrets()}
    shown = replace(plan, exports={key: value for key, value in plan.exports.items() if key not in hidden})
    metadata = {"name": f"{name}-plan"}
    made: list[yaml.Value] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_FILE: shown.to_json()}}
    ]
    if hidden:
        made.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": hidden})
    return made


def _pod(plan: Plan, options: Options, node_rank: str, master: str) -> yaml.Value:
    """Return the template of a pod. Kubernetes replaces `$(NAME)` in its arguments by variables of the container."""
    container: dict[str, yaml.Value] = {
        "name": _CONTAINER,
        "image": image(options),
        "command": list(entry.main_of(entry.LAUNCH, "python")),
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
