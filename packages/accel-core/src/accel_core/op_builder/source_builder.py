# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders of ops from the sources in stock DeepSpeed, compiled when the op is first loaded."""

from __future__ import annotations

import logging
import os
import pkgutil
import shutil
from typing import Any, ClassVar

from accel_core.errors import UpstreamMissing
from accel_core.native import torch_locks, trust
from accel_core.op_builder import Implementation, OpBuilder
from accel_core.vendor import deepspeed_folder

_log = logging.getLogger("accel_core")


class SourceBuilder(OpBuilder):
    """Wrapper of one of upstream's builders.

    UPSTREAM: dotted names of the builder class; the first one that the installed DeepSpeed has is used.
    `is_compatible` compiles nothing; `load` does, with the C++ compiler and ninja.
    """

    UPSTREAM: ClassVar[tuple[str, ...]]
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.UPSTREAM,)

    def compatibility(self) -> tuple[bool, str]:
        """Return whether DeepSpeed has the sources, and a compiler and ninja are on PATH."""
        if deepspeed_folder() is None:
            return False, f"deepspeed, whose sources serve {self.name}, is not installed"
        if self._upstream_class() is None:
            return False, f"the installed deepspeed has no sources for {self.name}"
        compiler = next(iter(os.environ.get("CXX", "c++").split()), "the command of an empty CXX")
        missing = [tool for tool in (compiler, "ninja") if shutil.which(tool) is None]
        if missing:
            tools = " and ".join(missing)
            return False, f"{tools} not on PATH, needed to compile DeepSpeed's sources of {self.name}"
        return True, f"compiled from DeepSpeed's sources by {compiler} when first loaded"

    def load(self, verbose: bool = True) -> Any:
        """Compile the op (once; torch caches it) and import it.

        Raises UpstreamMissing if that is impossible, CacheUnusable if another user can have written torch's cache.
        """
        compatible, reason = self._decision()
        cls = self._upstream_class() if compatible else None
        if cls is None:
            raise UpstreamMissing(
                f"{self.name} cannot be built: {reason}",
                do='pip install deepspeed ninja and a C++ compiler, or use a torch optimizer (`"torch_adam": true`)',
            )
        builder = cls()
        for lock in torch_locks.stale_among([trust.checked_torch_extension(builder.name) / "lock"]):
            _log.warning("torch waits for a build that was killed: no process has %s open; delete it", lock)
        return builder.load(verbose=verbose)

    def _upstream_class(self) -> Any:
        for name in self.UPSTREAM:
            try:
                return pkgutil.resolve_name(name)
            except (ImportError, AttributeError):
                continue
        return None
