# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Records of rehearsals as a run would write them."""

from typing import Any

from accel_rehearse.record import Collective, DeviceModel, DryRank, Failure, HostUse, Phase, Place, Rehearsal

GIB = 1 << 30
PROFILE = DeviceModel(
    name="npu:910b-64", vendor="npu", capacity=64 * GIB, per_node=8, reserve=2 * GIB, source="a page"
)  # fmt: skip


def rank(**fields: Any) -> DryRank:
    """Return a rank that finished."""
    phases = (
        Phase("init", 4 * GIB, 4 * GIB, 5 * GIB, {"parameters": 4 * GIB}),
        Phase(
            "forward", 30 * GIB, 31 * GIB, 40 * GIB, {"parameters": 10 * GIB, "activations": 20 * GIB},
            module="model.layers.3.mlp", source="train.py:41",
        ),
        Phase("step", 12 * GIB, 12 * GIB, 40 * GIB, {"optimizer states": 12 * GIB}),
    )  # fmt: skip
    defaults: dict[str, Any] = {
        "rank": 0, "role": "first", "outcome": "finished", "requested": 30 * GIB, "allocated": 31 * GIB,
        "reserved": 40 * GIB, "phases": phases,
        "timeline": ((0, 12 * GIB, "forward"), (5, 30 * GIB, "forward"), (9, 12 * GIB, "step")),
        "largest": (Place("train.py:41", "model.layers.3.mlp", "activations", 20 * GIB, 32),),
        "host": HostUse(pageable=10 * GIB, pinned=2 * GIB),
        "collectives": (Collective("all_gather", "world", 64, "forward", "bfloat16", 406.0, 129.6 * GIB),),
    }  # fmt: skip
    return DryRank(**{**defaults, **fields})


OUT_OF_MEMORY = rank(
    rank=63, role="last", outcome="out of memory",
    failure=Failure("NPU out of memory.", "forward", "model.layers.3.mlp", "train.py:41", 2 * GIB),
)  # fmt: skip


def rehearsal(*ranks: DryRank, **fields: Any) -> Rehearsal:
    """Return the rehearsal of 64 ranks, 8 a node, of which `ranks` were rehearsed."""
    defaults: dict[str, Any] = {
        "program": ("train.py", "--deepspeed", "ds.json"), "profile": PROFILE, "reserve": 2 * GIB, "ranks": 64,
        "per_node": 8, "which": ("all",), "steps": 3, "output": False, "ranks_rehearsed": ranks,
        "assumed": ("no step is skipped",), "not_promised": ("kernel workspaces",), "seconds": 58.0,
        "committed": GIB // 2,
    }  # fmt: skip
    return Rehearsal(**{**defaults, **fields})
