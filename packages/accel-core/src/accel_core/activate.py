# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Entry point: torch calls `autoload` at the end of `import torch` (entry point group torch.backends).

torch turns any exception raised here into a failed `import torch`, so nothing here raises. No accelerator is
selected: a finder waits for `import deepspeed`, which loads the code of the hooks.
"""

from __future__ import annotations

import logging
import os
import pkgutil
import sys
from typing import Any

_registered = False


class DeepSpeedImportFinder:
    """A meta path finder that finds no module; it registers the hooks when `import deepspeed` begins.

    Registering them earlier would load wrapt (fifteen modules) in programs that never import deepspeed.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "deepspeed" and DeepSpeedImportFinder in sys.meta_path:
            sys.meta_path.remove(DeepSpeedImportFinder)
            _register_hooks()


def autoload() -> None:
    """Entry point of torch. Importing this package has registered the hooks already."""
    register()
    try:
        find_distributed_backends(sys.modules.get("torch.distributed"))
    except Exception:
        logging.getLogger("accel_core").exception(
            "backends of torch.distributed are not found by their entry points"
        )
    if os.environ.get("ACCEL_STORE_ADDRESS"):  # `env` is loaded in ranks only
        try:
            from accel_core import store_address

            store_address.apply()
        except Exception:
            logging.getLogger("accel_core").exception("torch's store will listen on all interfaces")


def register() -> None:
    """Register the hooks for the import of deepspeed, or run them now if it is imported. Idempotent."""
    if "deepspeed" in sys.modules:
        _register_hooks()
    elif DeepSpeedImportFinder not in sys.meta_path:
        sys.meta_path.insert(0, DeepSpeedImportFinder)


def find_distributed_backends(distributed: Any) -> None:
    """Let torch.distributed find backends by their entry points at the first use of their name, as torch 2.14 does.

    distributed: the module; None: torch has not imported it, or has none.
    """
    backend = getattr(distributed, "Backend", None)
    c10d = getattr(distributed, "distributed_c10d", None)
    theirs = "_ensure_backend_registered"
    if backend is None or hasattr(backend, theirs) or hasattr(c10d, theirs):
        return
    stock = backend.__new__
    if hasattr(stock, "finds_entry_points"):
        return

    def new(cls: Any, name: Any) -> Any:
        if isinstance(name, str):
            for part in name.lower().split(","):
                _load_backend(cls, part.rpartition(":")[2])
        return stock(cls, name)

    new.finds_entry_points = True  # type: ignore[attr-defined]
    backend.__new__ = new


def _load_backend(backend: Any, name: str) -> None:
    if name not in backend.backend_list:
        from importlib.metadata import entry_points

        for point in entry_points(group="torch.distributed.backends", name=name):
            point.load()()


def _register_hooks() -> None:
    global _registered
    if not _registered:
        _registered = True
        try:
            from wrapt import register_post_import_hook

            # In the table's order: if deepspeed is imported already they run now, and the later ones need the first.
            for module, hook in pkgutil.resolve_name("accel_core.api:import_hooks")():
                register_post_import_hook(hook, module)
        except Exception:
            logging.getLogger("accel_core").exception("accel_core is not joined to deepspeed")
