# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A placement for Ray: what each rank reserves, how ranks are spread, and the environment of each rank.

`scaling_config` are the arguments of `ray.train.ScalingConfig`; `bundles` and `strategy` those of
`ray.util.placement_group`; `ranks` has for each rank the `runtime_env` of its actor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from accel_core.launch.emit.checks import resources
from accel_core.launch.errors import InvalidArguments, InvalidSelection
from accel_core.launch.options import Options
from accel_core.launch.plan import Plan

#: Ray decides on which machine a rank runs, and Ray Train which address the ranks use.
_OF_THE_PLACEMENT = ("MASTER_ADDR", "MASTER_PORT")


def render(plan: Plan, options: Options) -> str:
    """Return the placement as JSON; raises `InvalidArguments`, `InvalidSelection`."""
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
