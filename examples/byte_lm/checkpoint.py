# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A run on disk: DeepSpeed's checkpoint, and next to it what an exact continuation needs besides weights.

<out>/checkpoint/latest          the newest complete step folder; DeepSpeed writes it last
<out>/checkpoint/step000600/     DeepSpeed's files, run.json (State), rng-rank0.pt, rng-rank1.pt, ...
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from byte_lm import ranks
from byte_lm.errors import BadInput

STATE = "run.json"


@dataclass
class State:
    """How far a run is; `identity` is what must be equal for the run to go on from here."""

    identity: dict[str, Any]
    step: int = 0
    windows: int = 0  # position in the training data
    train_loss: list[float] = field(default_factory=list)  # bits per byte, one a step
    validation_loss: list[tuple[int, float]] = field(default_factory=list)  # (step, bits per byte)


def find(out: Path, identity: dict[str, Any], steps: int) -> tuple[str, State]:
    """Tag and state of the newest checkpoint below `out`; raises BadInput if this run cannot go on from it."""
    folder = out / "checkpoint"
    try:
        tag = (folder / "latest").read_text(encoding="utf-8").strip()
        state = State(**json.loads((folder / tag / STATE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise BadInput(
            "There is nothing to resume.",
            found=str(error),
            expected=f"a complete checkpoint of this script in {folder}",
            do="name the folder of the earlier run with --out, or leave --resume out",
        ) from error
    differences = [
        f"{name} is {identity.get(name)} here and {state.identity.get(name)} in the checkpoint"
        for name in sorted({*identity, *state.identity})
        if identity.get(name) != state.identity.get(name)
    ]
    if differences:
        raise BadInput(
            f"The checkpoint {folder / tag} belongs to another run.",
            found="; ".join(differences),
            expected="the same model, text, seed, ranks and DeepSpeed stage as in the earlier run",
            do="repeat the earlier run's flags, or name another folder with --out",
        )
    if state.step >= steps:
        raise BadInput(
            "There is nothing left to train.",
            found=f"--steps {steps} and a checkpoint at step {state.step}",
            expected="more steps than the checkpoint already has",
            do=f"give --steps a number above {state.step}, or leave --resume out",
        )
    return tag, state


def save(engine: Any, out: Path, state: State) -> Path:
    """Write a checkpoint from all ranks and return its folder; an interrupted one is never the newest."""
    import torch
    from deepspeed import comm
    from deepspeed.accelerator import get_accelerator

    tag = f"step{state.step:06d}"
    folder = out / "checkpoint" / tag
    if ranks.speaks():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / STATE).write_text(json.dumps(asdict(state)), encoding="utf-8")
    comm.barrier()
    generators = {"host": torch.get_rng_state(), "device": get_accelerator().get_rng_state()}
    torch.save(generators, folder / f"rng-rank{ranks.rank()}.pt")
    engine.save_checkpoint(str(out / "checkpoint"), tag=tag)
    return folder


def load(engine: Any, out: Path, tag: str) -> None:
    """Put weights, optimizer and random generators of this rank back; raises BadInput if files are damaged."""
    import torch
    from deepspeed.accelerator import get_accelerator

    folder = out / "checkpoint" / tag
    try:
        loaded, _ = engine.load_checkpoint(str(out / "checkpoint"), tag=tag)
        if loaded is None:
            raise FileNotFoundError("DeepSpeed found no weights there")
        generators = torch.load(folder / f"rng-rank{ranks.rank()}.pt", weights_only=True)
    except Exception as error:  # whatever a reader of damaged files raises
        raise BadInput(
            f"The checkpoint {folder} cannot be read.",
            found=f"{type(error).__name__}: {error}",
            expected="all files of the checkpoint, as they were written",
            do="restore the folder, or start again without --resume",
        ) from error
    torch.set_rng_state(generators["host"])
    get_accelerator().set_rng_state(generators["device"])
