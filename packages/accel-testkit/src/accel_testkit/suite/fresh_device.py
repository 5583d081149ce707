# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A program that asks the accelerator for its devices in a fresh process, whose visible devices its parent has chosen.

    python -m accel_testkit.suite.fresh_device OUT PACKAGE.MODULE:CLASS RECORD...

OUT gets a JSON object: what the questions answer, how many devices compute, and what a forked process can do then.
In a rank, which has LOCAL_RANK, the first use is set_device() with it.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

#: Bytes of a tensor; memory_figures has the same.
BLOCK = 40 << 20
#: Guards against a hang of the forked process, in seconds.
_LIMIT = 60


def _answers(dotted: str, records: list[str]) -> dict[str, Any]:
    importlib.import_module("torch")
    accelerator = pkgutil.resolve_name(dotted)()
    answers: dict[str, Any] = {"available": accelerator.is_available(), "count": accelerator.device_count()}
    names = importlib.import_module("accel_core.op_builder.names")
    for name in names.UPSTREAM:  # as `import deepspeed` does
        accelerator.create_op_builder(name).is_compatible()
    answers["forked"] = _in_a_forked_process(accelerator) if answers["count"] else ""
    if answers["count"]:
        answers |= _used(accelerator)
    answers["computing"] = sum(_computes(accelerator, index) for index in range(answers["count"]))
    vendors = [pkgutil.resolve_name(record) for record in records]
    answers["runtime"] = [vendor.evidence().runtime for vendor in vendors]
    confirmations = [vendor.confirm() for vendor in vendors]
    answers["confirmed"] = [confirmation.devices for confirmation in confirmations]
    answers["reasons"] = [confirmation.reason for confirmation in confirmations]
    return answers


def _used(accelerator: Any) -> dict[str, Any]:
    """What the first use shows: where tensors are, which lazy calls come, and what a tensor leaves available."""
    torch: Any = sys.modules["torch"]
    calls: list[str] = []
    rank = int(os.environ.get("LOCAL_RANK", "0"))

    def restore() -> None:  # as DeepSpeed's checkpointing restores random states
        generator = accelerator.default_generator(accelerator.current_device())
        generator.set_state(generator.get_state())
        calls.append("second")

    for callback in (lambda: calls.append("first"), restore, lambda: calls.append("third")):
        accelerator.lazy_call(callback)
    if rank:
        accelerator.set_device(rank)
    block = torch.full((BLOCK,), 1, dtype=torch.uint8, device=accelerator.device())
    accelerator.synchronize()
    answers = {
        "current": accelerator.current_device(),
        "placed": block.device == torch.empty(1, device=accelerator.device(rank)).device,
        "lazy": list(calls),
        "left": [[accelerator.available_memory(), accelerator.total_memory()]],
    }
    index = answers["current"]
    held = torch.full((BLOCK,), 1, dtype=torch.uint8, device=accelerator.device(index))
    answers["left"].append([accelerator.available_memory(index), accelerator.total_memory(index)])
    del block, held
    return answers


def _computes(accelerator: Any, index: int) -> bool:
    torch: Any = sys.modules["torch"]
    try:
        return bool(torch.ones(2, device=accelerator.device(index)).sum().item() == 2.0)
    except Exception:
        return False


def _in_a_forked_process(accelerator: Any) -> str:
    """Return why the device cannot be used in a forked process; empty where it can."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        text = ""
        try:
            torch: Any = sys.modules["torch"]
            torch.ones(2, device=accelerator.device(0)).sum().item()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode()[:4000])
        os._exit(0)
    os.close(write)
    ended = _wait(child)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    return text if ended else f"it does not end, or dies {text}"


def _wait(child: int) -> bool:
    """Wait for a child; return whether it ended by itself, and with 0."""
    until = time.monotonic() + _LIMIT
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


def main(out: str, dotted: str, *records: str) -> None:
    """Write the answers, or the traceback under `error`."""
    answers: dict[str, Any] = {}
    try:
        answers = _answers(dotted, list(records))
    except (Exception, SystemExit):
        answers["error"] = traceback.format_exc()
    Path(out).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
