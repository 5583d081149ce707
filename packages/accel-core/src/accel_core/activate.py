# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The way in: torch calls `autoload` at the end of `import torch` (entry point group torch.backends).

torch turns any exception from here into a failed `import torch`, so nothing here raises, and nothing is
selected: two import hooks are registered, by name, whose code is loaded when deepspeed is.
"""

from __future__ import annotations

import logging

_HOOKS = {
    "deepspeed.accelerator.real_accelerator": "accel_core.upstream.hooks:on_accelerator",
    "deepspeed.ops.op_builder": "accel_core.upstream.hooks:on_op_builder",
}
_registered = False


def autoload() -> None:
    """Entry point of torch. Everything was done when this module's package was imported."""
    register()


def register() -> None:
    """Register the hooks, once. A module that is already imported is met at once."""
    global _registered
    if _registered:
        return
    _registered = True
    try:
        from wrapt import register_post_import_hook

        for module, hook in _HOOKS.items():
            register_post_import_hook(hook, module)
    except Exception:
        logging.getLogger("accel_core").exception("accel_core is not joined to deepspeed")
