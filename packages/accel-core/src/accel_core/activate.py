# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Entry point: torch calls `autoload` at the end of `import torch` (entry point group torch.backends).

torch turns any exception from here into a failed `import torch`, so nothing here raises, and nothing is
selected: two import hooks are registered, by name, whose code is loaded when deepspeed is.
"""

from __future__ import annotations

import logging
import sys

_HOOKS = {
    "deepspeed.accelerator.real_accelerator": "accel_core.api:on_accelerator",
    "deepspeed.ops.op_builder": "accel_core.api:on_op_builder",
}


class _DeepSpeedImportFinder:
    """A finder that finds nothing: it sees `import deepspeed` coming and registers the hooks just then.

    wrapt is fifteen modules, which programs that never import deepspeed need not load with torch.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "deepspeed" and _DeepSpeedImportFinder in sys.meta_path:
            sys.meta_path.remove(_DeepSpeedImportFinder)
            _register_hooks()


def autoload() -> None:
    """Entry point of torch. Everything was done when this module's package was imported."""
    register()


def register() -> None:
    """Be there when deepspeed is imported, or meet it at once if it is; calling again does nothing."""
    if "deepspeed" in sys.modules:
        _register_hooks()
    elif _DeepSpeedImportFinder not in sys.meta_path:
        sys.meta_path.insert(0, _DeepSpeedImportFinder)


def _register_hooks() -> None:
    if _HOOKS:
        try:
            from wrapt import register_post_import_hook

            # In order: where deepspeed is imported already the hooks run now, and ops need the accelerator's.
            for module in list(_HOOKS):
                register_post_import_hook(_HOOKS.pop(module), module)
        except Exception:
            logging.getLogger("accel_core").exception("accel_core is not joined to deepspeed")
