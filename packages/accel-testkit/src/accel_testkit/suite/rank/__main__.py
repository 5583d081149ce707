# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One rank: join the group on its device, do the job, write the answer to FOLDER/RANK.json."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from accel_core.vendor import torch_threads
from accel_testkit.suite import launch

#: Guards against a hang.
_TIMEOUT = timedelta(seconds=120)


def main(job: str, folder: str, dotted: str = "") -> int:
    """Do the job; return 0, or 1 after an exception, which is part of the answer."""
    answer: dict[str, Any] = {}
    rank = int(os.environ["RANK"])
    try:
        accelerator = _accelerator(dotted)
        _join(accelerator, folder, rank)
        module = job if "." in job else f"accel_testkit.suite.rank.{job}"
        importlib.import_module(module).work(accelerator, answer, Path(folder))
        torch.distributed.destroy_process_group()
    except Exception as error:
        traceback.print_exc()
        answer["error"] = f"{type(error).__name__}: {error}"
    launch.write(Path(folder, f"{rank}.json"), answer)
    return int("error" in answer)


def _accelerator(dotted: str) -> Any:
    from accel_core.api import get_accelerator, set_accelerator

    if dotted:
        set_accelerator(pkgutil.resolve_name(dotted)())
    return get_accelerator()


def _join(accelerator: Any, folder: str, rank: int) -> None:
    accelerator.set_device(int(os.environ["LOCAL_RANK"]))
    torch_threads.finish_at_exit()
    torch.distributed.init_process_group(
        accelerator.communication_backend_name(),
        init_method=Path(folder, "meeting").resolve().as_uri(),
        rank=rank,
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=_TIMEOUT,
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
