# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Entry point: torch calls `autoload` at the end of `import torch` (entry point group torch.backends).

torch turns any exception raised here into a failed `import torch`, so nothing here raises. No accelerator is
selected: import hooks are registered by name, and their code is loaded together with deepspeed.
"""

from __future__ import annotations

import logging
import os
import pkgutil
import sys

_HOOKS = {
    "deepspeed.accelerator.real_accelerator": "accel_core.api:on_accelerator",
    "deepspeed.ops.op_builder": "accel_core.api:on_op_builder",
    "deepspeed.launcher.runner": "accel_core.api:on_runner",
    "deepspeed.compile.util": "accel_core.api:on_builder_import",
    "deepspeed.ops.pin_memory": "accel_core.api:on_builder_import",
    "deepspeed.comm.comm": "accel_core.api:on_distributed",
    "deepspeed.runtime.engine": "accel_core.upstream.nvme_checkpoint:join",
    "deepspeed.runtime.zenflow.engine": "accel_core.api:on_zenflow",
    **{
        f"deepspeed.inference.v2.modules.implementations.{name}": "accel_core.api:on_inference_v2"
        for name in (
            "linear.blas_fp_linear",
            "post_norm.cuda_post_ln",
            "pre_norm.cuda_pre_ln",
            "pre_norm.cuda_pre_rms",
        )
    },
    "cpuinfo": "accel_core.api:on_cpu_info",
}


class _DeepSpeedImportFinder:
    """A meta path finder that finds no module; it registers the hooks when `import deepspeed` begins.

    Registering them earlier would load wrapt (fifteen modules) in programs that never import deepspeed.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "deepspeed" and _DeepSpeedImportFinder in sys.meta_path:
            sys.meta_path.remove(_DeepSpeedImportFinder)
            _register_hooks()


def autoload() -> None:
    """Entry point of torch. Importing this package has registered the hooks already."""
    register()
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
    elif _DeepSpeedImportFinder not in sys.meta_path:
        sys.meta_path.insert(0, _DeepSpeedImportFinder)


def _register_hooks() -> None:
    if _HOOKS:
        try:
            from wrapt import register_post_import_hook

            # In this order: if deepspeed is imported already they run now, and the later ones need the first.
            for module in list(_HOOKS):
                register_post_import_hook(_HOOKS.pop(module), module)
            for module, hook in pkgutil.resolve_name("accel_core.upstream.package_patches:hooks")().items():
                register_post_import_hook(hook, module)
        except Exception:
            logging.getLogger("accel_core").exception("accel_core is not joined to deepspeed")
