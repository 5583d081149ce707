# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The installed DeepSpeed, as the selection uses it: its backends, its accelerator classes, its import."""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import Any

from accel_core.errors import UpstreamMissing
from accel_core.op_builder.source_builder import deepspeed_folder
from accel_core.upstream.backend_table import BACKENDS, Backend

_SUFFIX = "_accelerator"
_NO_BACKENDS = {"abstract", "real"}


class StockDeepSpeed:
    """The installed deepspeed. Only `load` and `accelerator` import it."""

    def keys(self) -> frozenset[str] | None:
        """Return the keys of its backends; None if it is not installed."""
        folder = deepspeed_folder()
        if folder is None:
            return None
        stems = (path.stem for path in (folder / "accelerator").glob(f"*{_SUFFIX}.py"))
        return frozenset(stem.removesuffix(_SUFFIX) for stem in stems) - _NO_BACKENDS

    def backend(self, key: str, variant: str) -> Backend:
        """Return the probe for an entry of the cascade without an installed vendor package."""
        return BACKENDS[key, variant]

    def load(self) -> None:
        """Import deepspeed, which calls `get_accelerator()`."""
        importlib.import_module("deepspeed")
        _attach_submodules()

    def importing(self) -> bool:
        """Return whether deepspeed is being imported."""
        spec = getattr(sys.modules.get("deepspeed"), "__spec__", None)
        return bool(getattr(spec, "_initializing", False))

    def launching(self) -> bool:
        """Return whether this process is one of DeepSpeed's launcher: the script or one of its modules."""
        program = sys.modules.get("__main__")
        spec, main = getattr(program, "__spec__", None), getattr(program, "main", None)
        name = spec.name if spec else str(getattr(main, "__module__", ""))
        return name.startswith("deepspeed.launcher.")

    def accelerator(self, key: str) -> Any:
        """Return a new instance of DeepSpeed's own class for a key, without using its detection.

        The detection reads the environment again and could find another accelerator.
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
        accelerator = classes[0]()
        _refuse_without_builders(accelerator, key)
        return accelerator


def _attach_submodules() -> None:
    # After a failed import of deepspeed, its next import does not set the loaded submodules as attributes.
    for name, module in list(sys.modules.items()):
        parent, _, child = name.rpartition(".")
        if name.startswith("deepspeed.") and parent in sys.modules and child not in vars(sys.modules[parent]):
            setattr(sys.modules[parent], child, module)


def _refuse_without_builders(accelerator: Any, key: str) -> None:
    """Raise UpstreamMissing if creating one of its op builders fails, as DeepSpeed's npu does without CANN.

    DeepSpeed creates all of them: at its import (0.18), or at the first query of its ops.
    """
    if "deepspeed.ops.op_builder" not in sys.modules:
        return  # its import, which calls get_accelerator(), is still to come
    try:
        accelerator.create_op_builder("NotImplementedBuilder")
    except Exception as error:
        variable = f"export {error.args[0]}, as" if isinstance(error, KeyError) else "do what"
        raise UpstreamMissing(
            what=f"DeepSpeed's own backend for {key!r} cannot make its op builders",
            found=f"{type(error).__name__}: {error}",
            expected="op builders that can be made, as DeepSpeed's import or its first step does",
            do=f"{variable} the vendor's set-up script does, or install the vendor package for this device",
        ) from error


def _import_runtime(key: str) -> None:
    # Detection imports the runtime; for an accelerator that is requested by name it is not imported yet.
    torch = importlib.import_module("torch")
    for (name, _), backend in BACKENDS.items():
        if name == key and backend.runtime and not hasattr(torch, backend.namespace):
            importlib.import_module(backend.runtime)
