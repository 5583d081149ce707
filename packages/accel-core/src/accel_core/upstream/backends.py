# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What selection asks of DeepSpeed: its backends, one of its accelerator objects, its import."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from accel_core.errors import UpstreamMissing
from accel_core.op_builder.source_builder import deepspeed_folder
from accel_core.upstream.backend_table import BACKENDS, Backend

_SUFFIX = "_accelerator"
_NO_BACKENDS = {"abstract", "real"}


class StockDeepSpeed:
    """The installed deepspeed, which no method but `load` and `accelerator` imports."""

    def keys(self) -> frozenset[str] | None:
        """Return the accelerators that it has a backend for; None when it is not installed."""
        folder = deepspeed_folder()
        if folder is None:
            return None
        stems = (path.stem for path in (folder / "accelerator").glob(f"*{_SUFFIX}.py"))
        return frozenset(stem.removesuffix(_SUFFIX) for stem in stems) - _NO_BACKENDS

    def backend(self, key: str, variant: str) -> Backend:
        """Return the probe for an entry of the cascade that no installed package serves."""
        return BACKENDS[key, variant]

    def load(self) -> None:
        """Import deepspeed; its import asks for the accelerator."""
        importlib.import_module("deepspeed")

    def accelerator(self, key: str) -> Any:
        """Return a new object of DeepSpeed's own class for a key, made from the class, not by its detection.

        Its detection could find another one than was asked for, and reads the environment again.
        """
        _import_runtime(key)
        module = importlib.import_module(f"deepspeed.accelerator.{key}{_SUFFIX}")
        classes = [
            cls
            for name, cls in inspect.getmembers(module, inspect.isclass)
            if name.endswith("_Accelerator") and cls.__module__ == module.__name__
        ]
        if len(classes) != 1:
            raise UpstreamMissing(
                what=f"DeepSpeed's own backend for {key!r} cannot be used",
                found=f"{len(classes)} accelerator classes in {module.__name__}",
                expected="one class whose name ends with _Accelerator",
                do="install a supported DeepSpeed (see docs/upstream.md), or the vendor package for this device",
            )
        return classes[0]()


def _import_runtime(key: str) -> None:
    # Detection has imported it; for an accelerator that was asked for by name nobody has.
    torch = importlib.import_module("torch")
    for (name, _), backend in BACKENDS.items():
        if name == key and backend.runtime and not hasattr(torch, backend.namespace):
            importlib.import_module(backend.runtime)
