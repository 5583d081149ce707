# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A batch script for SLURM: one task per node, which starts the ranks of its node."""

from __future__ import annotations

import shlex
import sys

from accel_core.launch import entry
from accel_core.launch.emit.checks import job_name
from accel_core.launch.errors import InvalidArguments
from accel_core.launch.options import Options
from accel_core.launch.plan import Plan

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


def render(plan: Plan, options: Options) -> str:
    """Return the script. `--launcher_args` are further `#SBATCH` lines; raises `InvalidArguments`."""
    name = job_name(options)
    own = [f"--job-name={name}", f"--nodes={len(plan.hosts)}", "--ntasks-per-node=1", "--exclusive"]
    return _SCRIPT.format(
        directives="\n".join(f"#SBATCH {_directive(text)}" for text in (*own, *options.launcher_args)),
        name=name,
        plan=plan.to_json(),
        command=shlex.join(entry.main_of(entry.LAUNCH, sys.executable)),
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
