# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What selection asks of DeepSpeed: its backends, one of its accelerator objects, its import."""

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
        _attach_submodules()

    def importing(self) -> bool:
        """Whether `import deepspeed` has begun and not ended."""
        spec = getattr(sys.modules.get("deepspeed"), "__spec__", None)
        return bool(getattr(spec, "_initializing", False))

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
        accelerator = classes[0]()
        _refuse_without_builders(accelerator, key)
        return accelerator


def _attach_submodules() -> None:
    # An import of deepspeed that failed before leaves submodules that its next import does not make attributes.
    for name, module in list(sys.modules.items()):
        parent, _, child = name.rpartition(".")
        if name.startswith("deepspeed.") and parent in sys.modules and child not in vars(sys.modules[parent]):
            setattr(sys.modules[parent], child, module)


def _refuse_without_builders(accelerator: Any, key: str) -> None:
    """Raise UpstreamMissing where making one of its op builders fails, as DeepSpeed's npu does without CANN.

    DeepSpeed makes them all: while it is imported (0.18), or when it is first asked which ops there are.
    """
    if "deepspeed.ops.op_builder" not in sys.modules:
        return  # its import, which asks for the accelerator, is still to come
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
    # Detection has imported it; for an accelerator that was asked for by name nobody has.
    torch = importlib.import_module("torch")
    for (name, _), backend in BACKENDS.items():
        if name == key and backend.runtime and not hasattr(torch, backend.namespace):
            importlib.import_module(backend.runtime)
