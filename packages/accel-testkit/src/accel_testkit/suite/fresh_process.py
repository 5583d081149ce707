# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs that look at a vendor in a fresh process.

    python -m accel_testkit.suite.fresh_process JOB OUT ARGUMENT...

OUT gets what the job finds as a JSON object, or the traceback under `error`. A RECORD is the value of an entry point,
`package.vendor:VENDOR`.

trace PACKAGE RECORD...:                load the vendor step by step; say what each step imports and changes.
bare RECORD...:                         ask for evidence where neither torch nor a package made for it can be found.
devices PACKAGE.MODULE:CLASS RECORD...: ask the accelerator for the devices that this process may use.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import multiprocessing
import os
import pkgutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

#: Bytes of a tensor.
BLOCK = 40 << 20
#: Guards against a hang of the forked process, in seconds.
_LIMIT = 60
_HIDDEN = "torch"


def trace(package: str, *records: str) -> dict[str, Any]:
    """Return for each step of loading what it imports, changes and prints, and its exception."""
    report: dict[str, Any] = {}
    vendors: list[Any] = []
    classes: list[Any] = []
    steps: dict[str, Callable[[], object]] = {
        "package": lambda: importlib.import_module(package),  # which has to import core by itself
        "record": lambda: vendors.extend(pkgutil.resolve_name(record) for record in records),
        "evidence": lambda: [vendor.evidence() for vendor in vendors],
        "torch": lambda: importlib.import_module("torch"),
        "class": lambda: classes.extend(pkgutil.resolve_name(vendor.accelerator) for vendor in vendors),
        "construction": lambda: [cls() for cls in classes],
    }
    for name, action in steps.items():
        before = _state()
        modules, error = set(sys.modules), ""
        with _output() as written:
            try:
                action()
            except (Exception, SystemExit):
                error = traceback.format_exc()
        after = _state()
        report[name] = {
            "modules": sorted({module.partition(".")[0] for module in set(sys.modules) - modules}),
            "output": written[0],
            "error": error,
        }
        for kind, values in before.items():
            names = {*values, *after[kind]} if kind == "environment" else {*values}
            report[name][kind] = sorted(key for key in names if values.get(key) != after[kind].get(key))
    return report


def _state() -> dict[str, dict[str, Any]]:
    return {
        "environment": dict(os.environ),
        "settings": torch_settings(),
        "process": _process(),
        "shared": _shared(),
    }


@contextlib.contextmanager
def _output() -> Iterator[list[str]]:
    """Capture what is written to standard output inside, also by native code."""
    written = [""]
    with tempfile.TemporaryFile() as file:
        sys.stdout.flush()
        terminal = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            yield written
        finally:
            sys.stdout.flush()
            os.dup2(terminal, 1)
            os.close(terminal)
            file.seek(0)
            written[0] = file.read().decode(errors="replace")


def torch_settings() -> dict[str, Any]:
    """Return torch's settings of the whole process; empty as long as torch is not imported."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return {}
    return {
        "torch.use_deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch.set_default_dtype": torch.get_default_dtype(),
        "torch.set_default_device": torch.get_default_device(),
        "torch.set_grad_enabled": torch.is_grad_enabled(),
        "torch.set_num_threads": torch.get_num_threads(),
        "torch.set_float32_matmul_precision": torch.get_float32_matmul_precision(),
        "torch.manual_seed": torch.initial_seed(),
    }


def _process() -> dict[str, Any]:
    """Return what Python keeps once for the whole process."""
    root = logging.getLogger()
    return {
        "multiprocessing.set_start_method": multiprocessing.get_start_method(allow_none=True),
        "os.chdir": os.getcwd(),
        "signal.signal": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "sys.excepthook": sys.excepthook,
        "sys.setrecursionlimit": sys.getrecursionlimit(),
        "the root logger": (root.level, list(root.handlers)),
    }


def _shared() -> dict[str, Any]:
    """Return what other programs share: filters of warnings, and functions of torch and of its tensors."""
    found: dict[str, Any] = {"warnings.filters": list(warnings.filters)}
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        of_tensors = {
            key: value for cls in reversed(torch.Tensor.__mro__) for key, value in vars(cls).items()
        }
        for name, functions in (("torch", vars(torch)), ("torch.Tensor", of_tensors)):
            found |= {f"{name}.{key}": value for key, value in functions.items() if callable(value)}
    return found


class _Without:
    """A finder that knows no module whose name begins with torch's."""

    def __init__(self, finder: Any) -> None:
        self.finder = finder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the finder's answer, or None."""
        hidden = name.startswith(_HIDDEN) or not hasattr(self.finder, "find_spec")
        found: ModuleSpec | None = None if hidden else self.finder.find_spec(name, path, target)
        return found


def bare(*records: str) -> dict[str, Any]:
    """Return what the records' probes find without torch."""
    for name in [name for name in sys.modules if name.partition(".")[0].startswith(_HIDDEN)]:
        del sys.modules[name]
    sys.meta_path[:] = [_Without(finder) for finder in sys.meta_path]
    vendors = [pkgutil.resolve_name(record) for record in records]
    found = [vendor.evidence() for vendor in vendors]
    if _HIDDEN in sys.modules:
        raise ImportError("evidence() imports torch")
    return {
        "keys": [vendor.key for vendor in vendors],
        "runtime": [evidence.runtime for evidence in found],
        "hardware": [evidence.hardware for evidence in found],
        "reasons": [evidence.reason for evidence in found],
    }


def devices(dotted: str, *records: str) -> dict[str, Any]:
    """Return what the questions answer, how many devices compute, and what a forked process can do before that.

    In a rank, which has LOCAL_RANK, the first use is set_device() with it.
    """
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
    """Return what the first use shows: where tensors are, which lazy calls come, and what a tensor leaves available."""
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
    answers["streams"] = [_stream_fault(accelerator, index) for index in range(accelerator.device_count())]
    del block, held
    return answers


def _stream_fault(accelerator: Any, index: int) -> str:
    """Return what asking for the streams of a device raises; empty if nothing."""
    try:
        accelerator.current_stream(index)
        accelerator.default_stream(index)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _computes(accelerator: Any, index: int) -> bool:
    torch: Any = sys.modules["torch"]
    try:
        return bool(torch.ones(2, device=accelerator.device(index)).sum().item() == 2.0)
    except Exception:
        return False


def _in_a_forked_process(accelerator: Any) -> str:
    """Return why the device cannot be used in a forked process; empty where it can."""
    ours, theirs = multiprocessing.Pipe()
    fork: Any = multiprocessing.get_context("fork")
    child = fork.Process(target=_use, args=(accelerator, theirs))
    child.start()
    child.join(_LIMIT)
    child.kill()
    return str(ours.recv()) if ours.poll() else "it does not end, or dies"


def _use(accelerator: Any, pipe: Any) -> None:
    torch: Any = sys.modules["torch"]
    text = ""
    try:
        torch.ones(2, device=accelerator.device(0)).sum().item()
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
    pipe.send(text[:4000])
    os._exit(0)


def main(job: str, out: str, *arguments: str) -> None:
    """Do the job, and write what it finds."""
    found: dict[str, Any]
    try:
        jobs: dict[str, Callable[..., dict[str, Any]]] = {"trace": trace, "bare": bare, "devices": devices}
        found = jobs[job](*arguments)
    except (Exception, SystemExit):
        found = {"error": traceback.format_exc()}
    Path(out).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
