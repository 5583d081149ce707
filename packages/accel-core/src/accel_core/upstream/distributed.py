# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`deepspeed.init_distributed` with explanations: no device or no backend for the collectives, a wrong count of ranks.

DeepSpeed's own function does the work, and its result and its errors are not changed. The rank comes from the variables
of any launcher in `accel_core.launchers`. A program without a launcher becomes a job of one rank.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from accel_core import activate, env
from accel_core.errors import DOCUMENTATION, NoBackendForCollectives, in_short
from accel_core.launchers import launched
from accel_core.op_builder import NotImplementedBuilder
from accel_core.upstream.ranks import REQUIRED, asks_mpi, rank_env

_log = logging.getLogger("accel_core")


def explained(stock: Callable[..., None], current: Callable[[], Any]) -> Callable[..., None]:
    """Return `init_distributed` that explains why it fails without a device, and warns of accelerate's count.

    It takes the rank from any launcher, and without one makes a job of one rank (`rank_env`).
    """

    @functools.wraps(stock)
    def init_distributed(*args: Any, **kwargs: Any) -> None:
        bound = _bound(stock, args, kwargs)
        by_mpi = asks_mpi(bound) and not os.environ.get("RANK")
        expected = launched().size if by_mpi else None
        added = rank_env(bound)
        try:
            if added:
                activate.follow_store_address()
            stock(*args, **kwargs)
        except Exception as error:
            for name in added:
                os.environ.pop(name, None)
            accel = current()
            if _has_no_device(accel):
                raise _no_device(accel, error) from error
            if _is_unknown(asked := bound.get("dist_backend")):
                raise _no_backend(accel, str(asked), error) from error
            raise
        _warn_if_alone(expected)
        _refuse_group_without(current())
        _warn_if_accelerate_counts_one()
        _warn_if_torch_has_no_accelerator(current())

    return init_distributed


def _bound(stock: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        return inspect.signature(stock).bind(*args, **kwargs).arguments
    except TypeError:  # which DeepSpeed's own function will raise
        return kwargs


def _has_no_device(accel: Any) -> bool:
    try:
        return bool(accel.device_count() == 0)
    except Exception:
        return False  # the original error says more


def _no_device(accel: Any, error: Exception) -> NoBackendForCollectives:
    name = accel._name
    return NoBackendForCollectives(
        f"torch.distributed cannot be initialized for the accelerator {name!r}: no {name} device in "
        f"this process; {type(error).__name__}: {in_short(error)}",
        do="run on a machine with the device (`accel doctor` says what it finds here), or set DS_ACCELERATOR=cpu",
    )


def _is_unknown(backend: Any) -> bool:
    import torch.distributed as dist

    return isinstance(backend, str) and ":" not in backend and not dist.is_backend_available(backend)


def _no_backend(accel: Any, asked: str, error: Exception) -> NoBackendForCollectives:
    own = accel.communication_backend_name()
    # DeepSpeed calls the builder of a backend so; its reason is what to install.
    builder = accel.create_op_builder(f"{asked.upper()}CommBuilder")
    reason = "" if isinstance(builder, NotImplementedBuilder) else getattr(builder, "reason", "")
    return NoBackendForCollectives(
        f"torch.distributed cannot use the backend {asked!r}: "
        f"{reason or f'no such backend for {accel._name}'} ({type(error).__name__}: {in_short(error)}); "
        f"expected a backend of {accel._name} that is installed, as {own!r}",
        do=(
            f"leave dist_backend out, which gives {own!r}"
            + (", or install what is named above" if reason else "")
        ),
    )


def _refuse_group_without(accel: Any) -> None:
    """Raise if the process group was made for another device and has no backend for this accelerator on the host."""
    import torch
    import torch.distributed as dist

    host = torch.device("cpu")  # house: torch's device type
    if accel is None or accel._name != host.type or not dist.is_initialized():
        return
    types: list[torch.device] = getattr(dist.group.WORLD, "_device_types", [host])
    if host in types:
        return
    backend = dist.get_backend()
    (device, *_) = dist.Backend.backend_capability.get(backend, [types[0].type])
    raise NoBackendForCollectives(
        f"collectives of {accel._name} tensors are not possible in this process: torch.distributed "
        f"was initialized for {device} alone, with {backend!r}",
        do=(
            f"begin the program with torch.distributed.init_process_group('{host}:gloo,{device}:{backend}'), ahead of "
            "DeepSpeed's own call; or use the CPU in its own process"
        ),
    )


def _warn_if_alone(expected: int | None) -> None:
    """Warn if mpi4py has started MPI without the launcher: every process would train by itself."""
    import torch.distributed as dist

    if expected is not None and expected > 1 and dist.is_initialized() and dist.get_world_size() == 1:
        _log.warning(
            "the launcher has started %d ranks, and mpi4py counts one: its MPI is not that of the launcher. Set %s in "
            "each rank, or build mpi4py for the launcher's MPI",
            expected,
            ", ".join(REQUIRED),
        )


def _warn_if_accelerate_counts_one() -> None:
    """Warn if accelerate has counted one process in a job of several: each rank would train on all of the data."""
    import torch.distributed as dist

    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    counted = getattr(state, "_shared_state", {}).get("num_processes")
    if (
        counted != 1
        or not dist.is_initialized()
        or dist.get_world_size() == 1
        or not env.is_local_rank_zero()
    ):
        return
    _log.warning(
        "accelerate counts 1 process, torch.distributed %d ranks: every rank would train on all of the data. Set "
        "ACCELERATE_USE_DEEPSPEED=true, call accelerate.PartialState(backend=%r) ahead of TrainingArguments, and give "
        'these accelerator_config={"use_configured_state": True}. Without the Trainer, give accelerate.Accelerator '
        "kwargs_handlers=[InitProcessGroupKwargs(backend=%r)]; the lines are in %s/huggingface.md",
        dist.get_world_size(),
        dist.get_backend(),
        dist.get_backend(),
        DOCUMENTATION,
    )


def _warn_if_torch_has_no_accelerator(accel: Any) -> None:
    """Warn if TrainingArguments, next, will end in "Cannot access accelerator device when none is available".

    torch looks once for the device of `torch.accelerator`; transformers asks when it is imported.
    """
    import torch

    if "transformers.training_args" not in sys.modules or not env.is_local_rank_zero():
        return
    name = accel.device_name().partition(":")[0]
    if name == "cpu" or torch.accelerator.is_available():  # house: torch's device type
        return
    _log.warning(
        "torch.accelerator has no device, but DeepSpeed uses %r: TrainingArguments ends in 'Cannot access accelerator "
        "device when none is available'. Import the device's runtime ahead of transformers; it is named in "
        "%s/huggingface.md",
        name,
        DOCUMENTATION,
    )
