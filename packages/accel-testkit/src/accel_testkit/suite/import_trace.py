# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A program that loads a vendor step by step in a fresh process and writes what each step imports and changes.

    python -m accel_testkit.suite.import_trace OUT PACKAGE RECORD...

A record is the value of an entry point, `package.vendor:VENDOR`. OUT gets a JSON object, one entry a step.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the package has to import core by itself
    from accel_core.vendor import Vendor


class Steps:
    """Runs steps one after the other and keeps what each changed."""

    def __init__(self) -> None:
        self.report: dict[str, dict[str, Any]] = {}

    def step(self, name: str, action: Callable[[], object]) -> None:
        """Run one step; an exception is part of its report."""
        modules, environment, settings = set(sys.modules), dict(os.environ), _settings()
        process, shared = _process(), _shared()
        error = ""
        with _output() as written:
            try:
                action()
            except (Exception, SystemExit):
                error = traceback.format_exc()
        after, process_after, shared_after = _settings(), _process(), _shared()
        self.report[name] = {
            "modules": sorted({module.partition(".")[0] for module in set(sys.modules) - modules}),
            "environment": sorted(key for key, _ in set(environment.items()) ^ set(os.environ.items())),
            "settings": sorted(key for key, value in settings.items() if after[key] != value),
            "process": sorted(key for key, value in process.items() if process_after[key] != value),
            "shared": sorted(key for key, value in shared.items() if shared_after.get(key) != value),
            "output": written[0],
            "error": error,
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


def _settings() -> dict[str, object]:
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


def _process() -> dict[str, object]:
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


def _shared() -> dict[str, object]:
    """Return what other programs share: filters of warnings, and functions of torch and of its tensors."""
    found: dict[str, object] = {"warnings.filters": list(warnings.filters)}
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        of_tensors = {
            key: value for cls in reversed(torch.Tensor.__mro__) for key, value in vars(cls).items()
        }
        for name, functions in (("torch", vars(torch)), ("torch.Tensor", of_tensors)):
            found |= {f"{name}.{key}": value for key, value in functions.items() if callable(value)}
    return found


def main(out: str, package: str, *records: str) -> None:
    """Run all steps and write the report."""
    steps = Steps()
    vendors: list[Vendor] = []
    steps.step("package", lambda: importlib.import_module(package))
    steps.step("record", lambda: vendors.extend(pkgutil.resolve_name(record) for record in records))
    steps.step("evidence", lambda: [vendor.evidence() for vendor in vendors])
    steps.step("torch", lambda: importlib.import_module("torch"))
    classes: list[Any] = []
    steps.step(
        "class", lambda: classes.extend(pkgutil.resolve_name(vendor.accelerator) for vendor in vendors)
    )
    steps.step("construction", lambda: [cls() for cls in classes])
    Path(out).write_text(json.dumps(steps.report), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
