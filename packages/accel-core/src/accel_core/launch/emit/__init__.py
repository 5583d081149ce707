# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A plan as a file for a cluster that starts processes itself: SLURM, Kubernetes, Ray.

On each machine of the cluster `python -m accel_core.launch --plan … --no_ssh --node_rank …` starts the ranks of that
machine, and decides there on which cores they run: the topology of a cluster's machines is not known in advance.
"""

from __future__ import annotations

from collections.abc import Callable

from accel_core.launch.emit import kubernetes, ray, sbatch
from accel_core.launch.options import Options
from accel_core.launch.plan import Plan

_FORMATS: dict[str, Callable[[Plan, Options], str]] = {
    "sbatch": sbatch.render,
    "k8s": kubernetes.jobset,
    "pytorchjob": kubernetes.pytorchjob,
    "ray": ray.render,
}


def render(plan: Plan, options: Options) -> str:
    """Return the text of `--emit`; raises `InvalidArguments` for a name or an image that cannot be used there."""
    return _FORMATS[options.emit or ""](plan, options)
