# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What selection asks of DeepSpeed: its backends, one of its objects, its import."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from pathlib import Path
from typing import Any

from accel_core import current, known
from accel_core.errors import UpstreamMissing

_SUFFIX = "_accelerator"
_NO_BACKENDS = {"abstract", "real"}


def connect() -> None:
    """Let selection ask the functions of this module."""
    current.upstream.keys = backend_keys
    current.upstream.defer = own_accelerator
    current.upstream.load = load


def package_folder() -> Path | None:
    """Folder of the installed deepspeed, None when it is not installed; deepspeed is not imported."""
    spec = importlib.util.find_spec("deepspeed")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def backend_keys() -> frozenset[str] | None:
    """The accelerators that the installed DeepSpeed has a backend for; None when it is not installed."""
    folder = package_folder()
    if folder is None:
        return None
    stems = (path.stem for path in (folder / "accelerator").glob(f"*{_SUFFIX}.py"))
    return frozenset(stem.removesuffix(_SUFFIX) for stem in stems) - _NO_BACKENDS


def load() -> None:
    """Import deepspeed; its import asks for the accelerator."""
    importlib.import_module("deepspeed")


def own_accelerator(key: str) -> Any:
    """DeepSpeed's own accelerator object for a key, made from its class rather than from its detection.

    Its detection could name another one than was asked for, and reads the environment again.
    """
    _import_runtime(key)
    module = importlib.import_module(f"deepspeed.accelerator.{key}{_SUFFIX}")
    kinds = [
        kind
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if name.endswith("_Accelerator") and kind.__module__ == module.__name__
    ]
    if len(kinds) != 1:
        raise UpstreamMissing(
            what=f"DeepSpeed's own backend for {key!r} can not be used",
            found=f"{len(kinds)} accelerator classes in {module.__name__}",
            expected="one class whose name ends with _Accelerator",
            do="install a supported DeepSpeed (see docs/upstream.md), or the vendor package for this device",
        )
    return kinds[0]()


def _import_runtime(key: str) -> None:
    # Detection has imported it; for an accelerator that was asked for by name nobody has.
    torch = importlib.import_module("torch")
    for row in known.rows(key):
        if row.runtime and not hasattr(torch, row.namespace):
            importlib.import_module(row.runtime)
